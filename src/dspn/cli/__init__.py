"""The `dspn` command: tables in, tables out, and one sentence where something is wrong."""
