"""One slice at a time: P_t(x_t | x_1..x_{t-1}), where P_t is the network of t slices.

With the root at the last slice the state of a stream is the interface vector v_t, and x_t enters
from above. With the root at the first slice the state is a linear functional of the interface
below: the top network is written as a sum of products of linear forms, one form for each group, and
every slice moves each form down through the template. That needs each group to read exactly one
group; otherwise (outputs that multiply groups) prefixes are evaluated one by one.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import product as cartesian
from typing import Final, NamedTuple, final

import numpy as np

from dspn._arrays import Floats, Ints
from dspn.data import Sequences
from dspn.engine.arithmetic import Arithmetic
from dspn.engine.blocks import Segment, slices_as_lanes
from dspn.engine.job import Job
from dspn.engine.program import Program
from dspn.engine.records import Flows, State
from dspn.engine.totals import TERMS, log_shares, ordered_sum, plus, scaled_logs, total_of
from dspn.errors import StructureError
from dspn.structure.nodes import Input, Product, Sum

_MOST_TERMS: Final = 4096
_NO_STORE: Final = np.empty((0, 0, 0))

# A linear form by its inputs: of the many inputs of a large network a term may name few.
_Form = dict[int, float]
_Term = tuple[float, dict[int, _Form]]


def reads_one_group_each(program: Program) -> bool:
    """Whether every output reads exactly one group, so that a slice is linear in each group."""
    operations = program.template.mix_part.operations
    return program.every_group_is_read and bool(np.all(np.diff(operations.source_start) == 1))


@final
@dataclass(frozen=True, eq=False)
class TopTerms:
    """The top network as sum_r coefficient[r] * prod_g (forms[r, inputs of g] . v_g)."""

    coefficients: Floats
    forms: Floats


def _merged(terms: list[_Term]) -> list[_Term]:
    """Adds up terms that are linear forms of one and the same group."""
    single: dict[int, _Form] = {}
    rest: list[_Term] = []
    for coefficient, forms in terms:
        if len(forms) == 1:
            ((group, form),) = forms.items()
            total = single.setdefault(group, {})
            for row, number in form.items():
                total[row] = total.get(row, 0.0) + coefficient * number
        else:
            rest.append((coefficient, forms))
    return [(1.0, {group: form}) for group, form in single.items()] + rest


def _dense(forms: dict[int, _Form], size: int) -> Floats:
    """The forms of a term, one for each group, side by side."""
    found = np.zeros(size)
    for form in forms.values():
        found[list(form)] = list(form.values())
    return found


def top_terms(program: Program) -> TopTerms:
    """Multiplies the top network out into products of linear forms, one for each group."""
    top = program.network.top
    weights = program.network.parameters.top.weights
    row_of = {int(position): row for row, position in enumerate(program.template.input_order)}
    terms: dict[int, list[_Term]] = {}
    for index in top.order:
        node = top.nodes[index]
        if isinstance(node, Input):
            row = row_of[node.position]
            terms[index] = [(1.0, {int(program.input_group[row]): {row: 1.0}})]
        elif isinstance(node, Sum):
            start = top.edge_offsets[index]
            terms[index] = _merged(
                [
                    (float(weights[start + edge]) * coefficient, forms)
                    for edge, child in enumerate(node.children)
                    for coefficient, forms in terms[child]
                ]
            )
        elif isinstance(node, Product):
            combinations = cartesian(*(terms[child] for child in node.children))
            terms[index] = [
                (
                    float(np.prod([coefficient for coefficient, _ in factors])),
                    reduce(lambda a, b: a | b, (forms for _, forms in factors)),
                )
                for factors in combinations
            ]
        if len(terms[index]) > _MOST_TERMS:
            raise StructureError(
                f"the top network multiplies out into more than {_MOST_TERMS} products of "
                "groups, too many for a stream with its root at the first slice; use "
                "`root='last'` or a smaller top network."
            )
    found = [term for term in terms[top.root] if term[0] > 0]
    return TopTerms(
        np.array([coefficient for coefficient, _ in found]),
        np.stack([_dense(forms, program.num_interfaces) for _, forms in found]),
    )


class Step(NamedTuple):
    """The state after a slice, and whether a value may have been lost to the range of numbers."""

    state: State
    lossy: bool


def step_up(job: Job, arithmetic: Arithmetic, rows: Ints, below: State, *, bottom: bool) -> Step:
    """The state above the slices `rows`, one lane each, from the state below them."""
    block = slices_as_lanes(rows)
    segment = Segment(0, 1, bottom and job.program.untied)
    state = below.copy()
    given = job.given(arithmetic, block, segment)
    lossy = arithmetic.upward(
        job.program, given.coefficients, block.batch(job.numbers), segment, state, _NO_STORE
    )
    return Step(state, lossy or given.lossy)


def step_down(
    job: Job,
    arithmetic: Arithmetic,
    rows: Ints,
    forms: State,
    *,
    seed: bool = False,
    below: Floats | None = None,
    bottom: bool = False,
) -> tuple[Flows, bool]:
    """Moves linear forms down through the slices `rows`, in place; returns the flows there.

    `below` are the input vectors, all 1 where they are not given. The second result says whether a
    value may have been lost.
    """
    block = slices_as_lanes(rows)
    segment = Segment(0, 1, bottom and job.program.untied)
    given = job.given(arithmetic, block, segment)
    inputs = arithmetic.start(job.program, rows.size).v if below is None else below
    flows = arithmetic.new_flows(job.program, 1, rows.size, seed=seed)
    lossy = arithmetic.downward(
        job.program,
        given.coefficients,
        block.batch(job.numbers),
        segment,
        forms,
        inputs[None],
        flows,
    )
    return flows, lossy or given.lossy


def leaf_posteriors(
    job: Job, arithmetic: Arithmetic, rows: Ints, flows: Flows, *, bottom: bool
) -> Floats:
    """P(leaf | evidence), (leaves, slices), of the slices `rows` from the seeds of `step_down`."""
    own_parameters = bottom and job.program.untied
    given = job.given(arithmetic, slices_as_lanes(rows), Segment(0, 1, own_parameters))
    tables = job.leaf_tables(arithmetic, own_parameters, rows)
    found = arithmetic.slice_flows(
        job.program,
        own_parameters,
        tables.tables,
        job.coding.codes,
        rows,
        given.coefficients.shift,
        np.ascontiguousarray(flows.seed[0]),
    )
    return found.posterior


def paired(program: Program, arithmetic: Arithmetic, forms: State, values: State | None) -> Floats:
    """Log prod_g (form_g . v_g) for each lane, as totals.

    Without `values` v = 1, a missing bottom slice.
    """
    starts = program.template.mix_part.operations.group_start
    states = (forms,) if values is None else (forms, values)
    logs = [] if values is None else [*values.scale]
    for group in range(program.num_groups):
        own = np.arange(starts[group], starts[group + 1])
        if arithmetic.is_linear:
            product = forms.v[own] if values is None else forms.v[own] * values.v[own]
            powers = np.sum([state.exponents[group] for state in states], axis=0)
            logs += scaled_logs(ordered_sum(product, 0), powers.astype(np.int64))
        else:
            rows = own, program.num_interfaces + own
            factors = [state.v[row] for state in states for row in rows]
            logs += [*log_shares(plus(total_of(factors[0]), *factors[1:]), axis=0)[1]]
            rest = group, program.num_groups + group
            logs += [state.exponents[row] for state in states for row in rest]
    return plus(forms.scale, *logs)


def starting_forms(program: Program, arithmetic: Arithmetic, terms: TopTerms, copies: int) -> State:
    """The top network's forms as a downward state, `copies` lanes for each term, term by term."""
    state = arithmetic.start(program, terms.coefficients.size * copies)
    forms = np.repeat(terms.forms.T, copies, axis=1)
    with np.errstate(divide="ignore"):
        state.v[: program.num_interfaces] = forms if arithmetic.is_linear else np.log(forms)
    return state


def summed_terms(terms: TopTerms, log_products: Floats) -> tuple[Floats, Floats]:
    """Log sum_r coefficient[r] exp(log_products[r]) as totals, and the log share of each term.

    Totals (terms * lanes,) -> (lanes,) and shares (terms, lanes).
    """
    by_term = log_products.reshape(TERMS, terms.coefficients.size, -1)
    shares, total = log_shares(plus(by_term, np.log(terms.coefficients)[:, None]), axis=0)
    return total, shares


def missing_slice(program: Program) -> Sequences:
    """One sequence of one slice with every entry missing."""
    schema = program.network.schema
    return Sequences.from_codes(np.full((1, len(schema)), np.nan), [0, 1], schema)
