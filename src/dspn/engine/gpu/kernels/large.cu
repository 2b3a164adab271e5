// The slices of chains whose transitions are matrix products, between these.
//
// Compiled with -DTHREADS=n for the threads that share a sequence, -DVECTOR=v for the nodes that one
// load takes, and -DMOST=m where a thread takes at most m times v nodes. Threads of one warp leave
// the rest of their block to other sequences.

constexpr int LANES = THREADS == 32 ? 4 : 1;

struct alignas(VECTOR * sizeof(real)) Pack {
    real v[VECTOR];
};

// What `better` makes of the values of all threads of a sequence.
template <typename T, typename Better>
__device__ __forceinline__ T over_sequence(T own, T* shared, Better better) {
    if constexpr (LANES == 1) { return over_block(own, shared, better); }
    for (int step = 16; step; step /= 2) { own = better(own, __shfl_xor_sync(EVERY_LANE, own, step)); }
    return own;
}

// The slice of a sequence.
struct Place {
    long long row;
    const Pack* coefficients;
    __device__ __forceinline__ Place(
        const long long* first, int along, int lane, const int* slot, const real* table, int packs) {
        row = first[lane] + along;
        coefficients = reinterpret_cast<const Pack*>(table) + (long long)slot[row] * packs;
    }
};

// One slice of a large chain: vectors[row] = mixed * table[slot[row]] + under, divided by the power
// of two below the largest entry, which is added to `powers`. The row of a sequence is `along` behind
// its first. `out` has the rows of all sequences side by side; it or `kept` may be none.
extern "C" __global__ void __launch_bounds__(THREADS * LANES) rise(
    const real* __restrict__ mixed, const real* __restrict__ table, const int* __restrict__ slot,
    const long long* __restrict__ first, int along, int count, int width, int k, real under,
    int narrow, real* __restrict__ out, real* __restrict__ kept, int* __restrict__ exponents,
    long long* __restrict__ powers, real* __restrict__ least) {
    const int lane = blockIdx.x * LANES + threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
    if (lane >= count) { return; }  // whole warps, and none where a block takes one sequence
    const int packs = width / VECTOR;
    const Place place(first, along, lane, slot, table, packs);
    const Pack* from = reinterpret_cast<const Pack*>(mixed) + (long long)lane * packs;
    Pack own[MOST];
    real high = 0, low = 1;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int p = a * THREADS + thread;
        if (p < packs) {
            const Pack coefficients = place.coefficients[p];
            if (mixed != nullptr) { own[a] = from[p]; }
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                const real before = mixed == nullptr ? real(1) : own[a].v[v];
                const real value = before * coefficients.v[v] + under;
                own[a].v[v] = value;
                high = value > high ? value : high;
                if (p * VECTOR + v < k) { low = value < low ? value : low; }
            }
        }
    }
    __shared__ real highs[32], lows[32];
    high = over_sequence(high, highs, [](real a, real b) { return b > a ? b : a; });
    low = over_sequence(low, lows, [](real a, real b) { return b < a ? b : a; });
    const int e = high > 0 ? exponent_of(high) : 0;
    const real unit = power_of_two(-e);
    Pack* side = reinterpret_cast<Pack*>(out) + (long long)lane * packs;
    Pack* stay = reinterpret_cast<Pack*>(kept) + place.row * packs;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int p = a * THREADS + thread;
        if (p < packs) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) { own[a].v[v] = narrowed(own[a].v[v] * unit, narrow); }
            if (out != nullptr) { side[p] = own[a]; }
            if (kept != nullptr) { stay[p] = own[a]; }
        }
    }
    if (thread == 0) {
        powers[lane] += e;
        if (low < least[lane]) { least[lane] = low; }
        if (exponents != nullptr) { exponents[place.row] = e; }
    }
}

// One slice of a large chain on the way down, as in `backward` of scan.cu. `handed` has the uses of all
// sequences side by side; it may be none.
extern "C" __global__ void __launch_bounds__(THREADS * LANES) fall(
    const real* __restrict__ derivatives, const real* __restrict__ table,
    const int* __restrict__ slot, const long long* __restrict__ first, int along, int count,
    int width, int is_bottom, int narrow, const real* __restrict__ vectors,
    const int* __restrict__ exponents, const real* __restrict__ share, int* __restrict__ highest,
    real* __restrict__ posteriors, real* __restrict__ uses, real* __restrict__ handed) {
    const int lane = blockIdx.x * LANES + threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
    if (lane >= count) { return; }  // whole warps, and none where a block takes one sequence
    const int packs = width / VECTOR;
    const Place place(first, along, lane, slot, table, packs);
    const Pack* from = reinterpret_cast<const Pack*>(derivatives) + (long long)lane * packs;
    const Pack* values = reinterpret_cast<const Pack*>(vectors) + place.row * packs;
    const bool counts = share[lane] > 0;
    const real unit = counts && !is_bottom ? power_of_two(-exponents[place.row]) : real(0);
    unsigned most = 0;
    Pack* posterior = reinterpret_cast<Pack*>(posteriors) + place.row * packs;
    Pack* use = reinterpret_cast<Pack*>(uses) + place.row * packs;
    Pack* side = reinterpret_cast<Pack*>(handed) + (long long)lane * packs;
#pragma unroll
    for (int a = 0; a < MOST; ++a) {
        const int p = a * THREADS + thread;
        if (p < packs) {
            Pack own = from[p], value = values[p];
            const Pack coefficients = place.coefficients[p];
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                const real derivative = own.v[v];
                most = max(most, bits_of(derivative));
                value.v[v] = counts ? value.v[v] * derivative : real(0);
                const real found = coefficients.v[v] * unit * derivative;
                own.v[v] = unit > 0 ? narrowed(found, narrow) : real(0);
            }
            posterior[p] = value;
            use[p] = own;
            if (handed != nullptr) { side[p] = own; }
        }
    }
    __shared__ unsigned highs[32];
    most = over_sequence(most, highs, [](unsigned a, unsigned b) { return b > a ? b : a; });
    if (thread == 0 && most) {  // of the value before it was divided, to which `under` was added
        highest[lane] = max(highest[lane], exponent_in(most) - exponents[place.row]);
    }
}
