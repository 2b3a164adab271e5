"""One slice at a time: P_t(x_t | x_1..x_{t-1}), where P_t is the network of t slices.

With the root at the last slice the state of a stream is the interface vector v_t, and x_t enters
from above. With the root at the first slice the state is a linear functional of the interface
below: the top network is written as a sum of products of linear forms, one form for each group, and
every slice moves each form down through the template. That needs each group to read exactly one
group; otherwise (outputs that multiply groups) prefixes are evaluated one by one.
"""

from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import product as cartesian
from typing import Final, NamedTuple, TypeVar, final

import numpy as np

from dspn._arguments import Bools, Floats, Ints
from dspn.data.sequences import Sequences
from dspn.engine import base
from dspn.engine.base import TERMS, Posteriors, StreamArrays, difference, plus, rounded
from dspn.engine.cpu.arithmetic import (
    BOUND,
    LINEAR,
    LOGARITHMIC,
    Arithmetic,
    powers_of_two,
    scaled_logs,
)
from dspn.engine.cpu.batch import Given, Job, LaneBlock
from dspn.engine.cpu.kernels.chain import LEAST_MASS
from dspn.engine.cpu.passes import AGREEMENT
from dspn.engine.cpu.program import CpuProgram
from dspn.engine.cpu.records import Segment, State
from dspn.errors import StructureError
from dspn.structure.network import Root
from dspn.structure.nodes import Input, Product, Sum

_MOST_TERMS: Final = 4096
_NO_STORE: Final = np.empty((0, 0, 0))
_ROW: Final = np.zeros(1, dtype=np.int64)
_LOG_TWO: Final = float(np.log(2.0))
# Logarithms above the first, and scales below the second, have room in a linear state.
_LEAST_LOGARITHM: Final = -600.0
_LARGEST_SHIFT: Final = 2.0**40

# A linear form by its inputs: of the many inputs of a large network a term may name few.
_Form = dict[int, float]
_Term = tuple[float, dict[int, _Form]]
_Found = TypeVar("_Found", "_Advanced", "_Predicted")


def reads_one_group_each(program: CpuProgram) -> bool:
    """Whether every output reads exactly one group, so that a slice is linear in each group."""
    operations = program.template.mix_part.operations
    return program.every_group_is_read and bool(np.all(np.diff(operations.source_start) == 1))


def can_stream(program: CpuProgram) -> bool:
    """Whether a vector is all that has to be remembered of the slices before."""
    return program.network.root == Root.LAST or reads_one_group_each(program)


class TopTerms(NamedTuple):
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


def top_terms(program: CpuProgram) -> TopTerms:
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


def _given(job: Job, arithmetic: Arithmetic, rows: Ints, bottom: bool) -> Given:
    """Coefficients of the slices `rows`, one lane of one slice each."""
    block = LaneBlock(rows, np.ones(rows.size, dtype=np.int64), rows, 1)
    return job.given(arithmetic, block, Segment(0, 1, bottom and job.program.untied))


def step_up(job: Job, arithmetic: Arithmetic, rows: Ints, below: State, *, bottom: bool) -> Step:
    """The state above the slices `rows`, one lane each, from the state below them."""
    given, state = _given(job, arithmetic, rows, bottom), below.copy()
    lossy = arithmetic.upward(job.program, given.span, state, _NO_STORE)
    return Step(state, lossy or given.lossy)


def step_down(job: Job, arithmetic: Arithmetic, rows: Ints, forms: State) -> bool:
    """Moves linear forms down through the slices `rows`, in place, above inputs that are all 1.

    Returns whether a value may have been lost.
    """
    given, inputs = _given(job, arithmetic, rows, False), arithmetic.start(job.program, rows.size)
    flows = arithmetic.new_flows(job.program, given.span)
    lossy = arithmetic.downward(job.program, given.span, forms, inputs.v[None], flows)
    return lossy or given.lossy


class _LeafPosteriors(NamedTuple):
    """P(leaf | evidence), (leaves, slices), and whether a value may have been lost.

    With `left_out` they are given all other entries, and `surprises` (variables, slices) are there.
    """

    posterior: Floats
    surprises: Floats
    lossy: bool


def leaf_posteriors(
    job: Job,
    arithmetic: Arithmetic,
    rows: Ints,
    forms: State,
    below: Floats,
    *,
    bottom: bool,
    left_out: bool,
) -> _LeafPosteriors:
    """Posteriors of the leaves of the slices `rows`, between forms and input vectors."""
    given = _given(job, arithmetic, rows, bottom)
    flows = arithmetic.new_flows(job.program, given.span, seed=True)
    lossy = arithmetic.downward(job.program, given.span, forms, below[None], flows)
    own = (given.span.segment.bottom, rows, given.span.given.shift, flows.seed[0])
    found, tables = job.slice_flows(arithmetic, *own, left_out=left_out)
    surprises = found.leave_out
    if left_out:
        variables = range(len(surprises))
        surprises = surprises - [job.log_divisors(tables, variable) for variable in variables]
        lossy = lossy or (arithmetic.is_linear and not np.all(flows.mass >= LEAST_MASS))
    return _LeafPosteriors(found.posterior, surprises, lossy or given.lossy)


def paired(
    program: CpuProgram, arithmetic: Arithmetic, forms: State, values: State | None
) -> Floats:
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
            logs += scaled_logs(base.ordered_sum(product, 0), powers.astype(np.int64))
        else:
            rows = own, program.num_interfaces + own
            factors = [state.v[row] for state in states for row in rows]
            logs += [*base.log_shares(plus(base.total_of(factors[0]), *factors[1:]), axis=0)[1]]
            rest = group, program.num_groups + group
            logs += [state.exponents[row] for state in states for row in rest]
    return plus(forms.scale, *logs)


def starting_forms(
    program: CpuProgram, arithmetic: Arithmetic, terms: TopTerms, copies: int
) -> State:
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
    shares, total = base.log_shares(plus(by_term, np.log(terms.coefficients)[:, None]), axis=0)
    return total, shares


def missing_slice(program: CpuProgram) -> Sequences:
    """One sequence of one slice with every entry missing."""
    schema = program.network.schema
    values, inputs = np.full((1, len(schema)), np.nan), np.zeros((1, len(schema.inputs)))
    return Sequences.trusted(values, np.array([0, 1]), schema, inputs=inputs)


def _states(arithmetic: Arithmetic, v: Floats, exponents: Floats, scale: Floats) -> State:
    """Vectors, exponents and scales of some places (places, rows) as the state of as many lanes."""
    vectors, powers, scales = (np.ascontiguousarray(array.T) for array in (v, exponents, scale))
    return State(vectors, arithmetic.exponents(powers), scales)


class _Part(NamedTuple):
    """Log P_t of the slices `rows`, which lie in `lanes` of a block; `lossy` as everywhere."""

    rows: Ints
    lanes: Ints
    log_seen: Floats
    log_unseen: Floats
    lossy: bool


def _from_below(
    job: Job, missing: Job, block: LaneBlock, arithmetic: Arithmetic
) -> Iterator[_Part]:
    """Root at the last slice: each slice enters on top of the vector of those before it."""
    program = job.program
    state = arithmetic.start(program, block.width)
    inputs = arithmetic.num_rows(program)
    after = inputs + 2 * program.num_groups
    for segment in job.segments(block, keep_flows=True):
        given = job.given(arithmetic, block, segment)
        store = np.zeros((segment.p1 - segment.p0, after + TERMS, block.width))
        lost = arithmetic.upward(program, given.span, state, store)
        every, active = block.rows(segment)
        at, lanes = np.nonzero(active)
        found, rows = store[at, :, lanes], every[active]
        below = _states(arithmetic, found[:, :inputs], found[:, inputs:after], found[:, after:])
        seen = step_up(job, arithmetic, rows, below, bottom=segment.bottom)
        # Without tables by inputs one missing slice is like another.
        blank = rows if program.by_inputs else np.zeros_like(rows)
        unseen = step_up(missing, arithmetic, blank, below, bottom=segment.bottom)
        now, before = (arithmetic.top(program, step.state) for step in (seen, unseen))
        lossy = any((lost, given.lossy, seen.lossy, unseen.lossy, now.lossy, before.lossy))
        yield _Part(rows, lanes, now.total, before.total, lossy)


def _from_above(
    job: Job, terms: TopTerms, block: LaneBlock, arithmetic: Arithmetic
) -> Iterator[_Part]:
    """Root at the first slice: the top network's forms move down through the slices seen."""
    program, count = job.program, terms.coefficients.size
    # Every sequence has a lane for each term. Kernels want lengths to fall, so terms run fastest
    # here; afterwards they are brought to the front: all places for the first term, then for the
    # second, ...
    members, lengths, base_rows = (
        np.repeat(own, count) for own in (block.members, block.lengths, block.base)
    )
    wide = LaneBlock(members, lengths, base_rows, -1)
    forms = starting_forms(program, arithmetic, terms, 1)
    forms = arithmetic.start(program, wide.width)._replace(v=np.tile(forms.v, (1, block.width)))
    for segment in reversed(job.segments(wide, keep_flows=True)):
        given = job.given(arithmetic, wide, segment)
        shape = (segment.p1 - segment.p0, 1, 1)
        below = np.tile(arithmetic.start(program, wide.width).v, shape)
        flows = arithmetic.new_flows(program, given.span, derivative=True)
        lost = arithmetic.downward(program, given.span, forms, below, flows)
        every, active = block.rows(segment)
        at, lanes = np.nonzero(active)
        rows = every[active]
        places = np.tile(at, count), np.concatenate([lanes * count + r for r in range(count)])
        found = (flows.derivative, flows.exponents.astype(np.float64), flows.scale)
        moved = _states(arithmetic, *(array[places[0], :, places[1]] for array in found))
        ones = arithmetic.start(program, rows.size * count)
        seen = step_up(job, arithmetic, np.tile(rows, count), ones, bottom=True)
        now, before = (paired(program, arithmetic, moved, v) for v in (seen.state, None))
        log_seen, log_unseen = (summed_terms(terms, logs)[0] for logs in (now, before))
        yield _Part(rows, lanes, log_seen, log_unseen, lost or given.lossy or seen.lossy)


def prefixes(program: CpuProgram, data: Sequences) -> base.Prefixes:
    """The log probabilities of every prefix; only where the program can stream.

    What linear arithmetic may have lost is found by a floor, as for likelihoods (see `passes`).
    """
    out = base.Prefixes(*(np.empty((TERMS, data.total_slices)) for _ in range(2)))
    job = Job(program, data)
    job.prepare(LINEAR)
    run: Callable[[LaneBlock, Arithmetic], Iterator[_Part]]
    if program.network.root == Root.FIRST:
        run = partial(_from_above, job, top_terms(program))
    else:
        blank = base.without_values(data) if program.by_inputs else missing_slice(program)
        run = partial(_from_below, job, Job(program, blank))

    def put(block: LaneBlock, arithmetic: Arithmetic) -> tuple[bool, Bools]:
        """Whether a value may have been lost, and the lanes in which something is impossible."""
        lossy, impossible = program.paths.doubt, np.zeros(block.width, dtype=np.bool_)
        for part in run(block, arithmetic):
            out.log_seen[:, part.rows] = part.log_seen
            out.log_unseen[:, part.rows] = part.log_unseen
            lossy = lossy or part.lossy
            impossible[part.lanes[np.isneginf(part.log_seen[0] + part.log_unseen[0])]] = True
        return lossy, impossible

    def work(block: LaneBlock) -> None:
        # What is impossible cannot be told from what was lost. Such lanes are always doubtful, so
        # that they do not depend on what the others of their block have lost.
        lossy, doubtful = put(block, LINEAR)
        for part in run(block, BOUND) if lossy else ():
            seen = difference(part.log_seen, out.log_seen[:, part.rows])
            unseen = difference(part.log_unseen, out.log_unseen[:, part.rows])
            doubtful[part.lanes[~(np.maximum(seen, unseen) <= AGREEMENT)]] = True
        doubtful |= program.paths.doubt
        if doubtful.any():
            put(block.only(doubtful), LOGARITHMIC)

    job.over_blocks(work)
    return out


class _Advanced(NamedTuple):
    """A state after one more slice, and log P_t with that slice and without, as totals (TERMS,).

    `lossy` says whether a value may have been lost.
    """

    state: State
    log_seen: Floats
    log_unseen: Floats
    lossy: bool


class _Predicted(NamedTuple):
    """P(leaf | x_1..x_{t-1}) of every load at the next slice, and log P_t(x_1..x_{t-1}).

    Of a slice that is given: see `base.Stream.predict`.
    """

    posterior: Floats
    surprises: Floats
    log_value: Floats
    lossy: bool


@final
class _Steps:
    """How the state of a stream goes from slice to slice, in either arithmetic.

    Root at the last slice: the state is the interface vector of the slices so far. Root at the
    first slice (with `terms`): it is the top network's linear forms, moved down through the slices.
    """

    def __init__(self, program: CpuProgram) -> None:
        self.program = program
        self.missing = Job.for_stream(program, missing_slice(program))
        self.terms = top_terms(program) if program.network.root == Root.FIRST else None
        count = 1 if self.terms is None else self.terms.coefficients.size
        self.rows = np.zeros(count, dtype=np.int64)

    def fresh(self, arithmetic: Arithmetic) -> State:
        """The state before the first slice."""
        if self.terms is None:
            return arithmetic.start(self.program, 1)
        return starting_forms(self.program, arithmetic, self.terms, 1)

    def advance(
        self, job: Job, blank: Job, arithmetic: Arithmetic, state: State, first: bool
    ) -> _Advanced:
        """The state after one more slice; `blank` has the same slice with its entries missing."""
        program, terms = self.program, self.terms
        if terms is None:
            seen = step_up(job, arithmetic, _ROW, state, bottom=first)
            unseen = step_up(blank, arithmetic, _ROW, state, bottom=first)
            now, before = (arithmetic.top(program, step.state) for step in (seen, unseen))
            lossy = any(found.lossy for found in (seen, unseen, now, before))
            return _Advanced(seen.state, now.total[:, 0], before.total[:, 0], lossy)
        ones = arithmetic.start(program, self.rows.size)
        values = step_up(job, arithmetic, self.rows, ones, bottom=True)
        log_seen, log_unseen = (
            summed_terms(terms, paired(program, arithmetic, state, v))[0][:, 0]
            for v in (values.state, None)
        )
        moved = state.copy()
        lossy = step_down(job, arithmetic, self.rows, moved)
        return _Advanced(moved, log_seen, log_unseen, lossy or values.lossy)

    def predict(
        self, arithmetic: Arithmetic, state: State, first: bool, job: Job, *, given: bool
    ) -> _Predicted:
        """The posterior over the leaves of the next slice, that of the job."""
        program, terms = self.program, self.terms
        left_out = given
        if terms is None:
            above = step_up(job, arithmetic, _ROW, state, bottom=first)
            top = arithmetic.top(program, above.state)
            forms = arithmetic.top_derivatives(program, top.rows)
            own = (job, arithmetic, _ROW, forms, state.v)
            found = leaf_posteriors(*own, bottom=first, left_out=left_out)
            lossy = found.lossy or above.lossy or top.lossy
            return _Predicted(found.posterior[:, 0], found.surprises.T, top.total[:, 0], lossy)
        ones, lossy = arithmetic.start(program, self.rows.size), False
        values = None
        if given:
            seen = step_up(job, arithmetic, self.rows, ones, bottom=True)
            values, lossy = seen.state, seen.lossy
        logs = paired(program, arithmetic, state, values)
        log_value, shares = summed_terms(terms, logs)
        own = (job, arithmetic, self.rows, state.copy(), ones.v)
        found = leaf_posteriors(*own, bottom=True, left_out=left_out)
        # A term that the evidence rules out has no posterior.
        possible = np.exp(shares[:, 0]) > 0
        log_share, posterior = shares[possible, 0], found.posterior[:, possible]
        lossy, surprises = lossy or found.lossy, found.surprises[:, possible]
        if not given:
            mixed = posterior @ np.exp(log_share)
            return _Predicted(mixed, surprises.T[:1], log_value[:, 0], lossy)
        ratios = log_share + surprises
        whole = np.logaddexp.reduce(ratios, axis=1)
        if not possible.all():  # what a term says without an entry that rules it out is not known
            whole[np.isfinite(job.data.values[0])] = np.nan
        share = np.exp(ratios - whole[:, None])[program.template.load_bank]
        return _Predicted((posterior * share).sum(axis=1), whole[None], log_value[:, 0], lossy)


@final
class VectorStream(base.Stream):
    """A stream whose memory is a vector, in linear arithmetic wherever its range suffices."""

    def __init__(self, steps: _Steps, state: State, arithmetic: Arithmetic) -> None:
        self.steps = steps
        self.state = state
        self.arithmetic = arithmetic

    @classmethod
    def fresh(cls, program: CpuProgram) -> "VectorStream":
        """Nothing seen."""
        steps = _Steps(program)
        return cls(steps, steps.fresh(LINEAR), LINEAR)

    def _exactly(self, run: Callable[[Arithmetic, State], _Found]) -> tuple[_Found, Arithmetic]:
        """What `run` finds, in logarithms where linear arithmetic loses something."""
        found = run(self.arithmetic, self.state)
        lossy = found.lossy or self.steps.program.paths.doubt
        if not (self.arithmetic.is_linear and lossy):
            return found, self.arithmetic
        return run(LOGARITHMIC, _to_logarithms(self.state)), LOGARITHMIC

    def advance(self, data: Sequences, first: bool) -> base.Advance:
        """Takes in one more slice."""
        steps, job = self.steps, self.steps.missing.on(data)
        blank = self._blank(data)
        found, arithmetic = self._exactly(
            lambda arithmetic, state: steps.advance(job, blank, arithmetic, state, first)
        )
        state = found.state
        if not arithmetic.is_linear and _is_linear_enough(state):
            state, arithmetic = _from_logarithms(steps.program, state), LINEAR
        return base.Advance(
            VectorStream(steps, state, arithmetic), found.log_seen, found.log_unseen
        )

    def _blank(self, data: Sequences) -> Job:
        """A slice with its entries missing, which differ where weights depend on inputs."""
        missing = self.steps.missing
        return missing.on(base.without_values(data)) if missing.program.by_inputs else missing

    def predict(self, first: bool, data: Sequences, *, given: bool = False) -> Posteriors:
        """Posteriors of the leaves of the next slice."""
        steps = self.steps
        job = steps.missing.on(data) if given else self._blank(data)
        found, _ = self._exactly(
            lambda arithmetic, state: steps.predict(arithmetic, state, first, job, given=given)
        )
        leaves = []
        for bank, (loads, members) in zip(
            steps.program.network.template.banks, steps.program.leaves, strict=True
        ):
            own = np.zeros((1, len(bank.nodes)))
            own[0, members] = found.posterior[loads]
            leaves.append(own)
        return Posteriors(found.log_value, tuple(leaves), surprises=found.surprises)

    def arrays(self) -> StreamArrays:
        """The vector and what it was divided by."""
        state, inputs = self.state, self.steps.program.num_interfaces
        return StreamArrays(
            not self.arithmetic.is_linear,
            state.v[:inputs].copy(),
            state.exponents.astype(np.float64),
            np.empty((0, len(self.steps.program.network.schema))),
            state.scale.copy(),
            state.v[inputs:].copy(),
        )

    def restore(self, saved: StreamArrays, log_likelihood: float) -> "VectorStream":
        """The stream that `arrays` was taken of; this one is fresh."""
        program, state = self.steps.program, self.state
        shapes = {"vectors": state.v.shape, "exponents": state.exponents.shape}
        shapes |= {"history": (0, len(program.network.schema))}
        shapes |= {"scale": state.scale.shape} if saved.scale.size else {}
        shapes |= {"low": state.v.shape} if saved.low.size else {}
        base.check_shapes(saved, shapes)
        arithmetic = LOGARITHMIC if saved.in_logarithms else LINEAR
        v = saved.vectors.copy()
        if saved.in_logarithms:
            v = np.concatenate([v, saved.low if saved.low.size else np.zeros_like(v)])
        exponents = arithmetic.exponents(saved.exponents.copy())
        found = VectorStream(self.steps, State(v, exponents, state.scale), arithmetic)
        if saved.scale.size:
            state.scale[...] = saved.scale
        elif program.network.root == Root.FIRST and not program.untied:
            # States of earlier releases keep the sum of the surprises instead of the divisors.
            blank = missing_slice(program)
            lacking = log_likelihood - rounded(found.predict(False, blank).log_values)
            state.scale[0] = lacking if np.isfinite(lacking) else 0.0
        return found


def _to_logarithms(state: State) -> State:
    """A linear state as logarithms."""
    groups = len(state.exponents) // 2
    *exact, low = powers_of_two(state.exponents[:groups].astype(np.int64))
    with np.errstate(divide="ignore"):
        v = np.concatenate([np.log(state.v), np.zeros_like(state.v)])
    return state._replace(v=v, exponents=np.concatenate([np.sum(exact, axis=0), low]))


def _is_linear_enough(state: State) -> bool:
    """Whether a state in logarithms has nothing that a linear one would lose."""
    groups = len(state.exponents) // 2
    v = state.v[: len(state.v) // 2]
    small = (v > -np.inf) & (v < _LEAST_LOGARITHM)
    return not small.any() and bool((np.abs(state.exponents[:groups]) < _LARGEST_SHIFT).all())


def _from_logarithms(program: CpuProgram, state: State) -> State:
    """A state in logarithms as a linear one; what is no power of two goes into the vectors."""
    groups = len(state.exponents) // 2
    whole = state.exponents[:groups] + state.exponents[groups:]
    powers = np.round(whole / _LOG_TWO).astype(np.int64)
    *exact, low = powers_of_two(powers)
    rest = (state.exponents[:groups] - np.sum(exact, axis=0)) + (state.exponents[groups:] - low)
    inputs = program.num_interfaces
    v = np.exp(state.v[:inputs] + (state.v[inputs:] + rest[program.input_group]))
    return state._replace(v=v, exponents=np.concatenate([powers, powers]))
