// Rows of vectors: their sums by group, and their columns in another order.
//
// Compiled with -DVECTOR=v for the columns that one load takes.

constexpr int ROWS = 2;   // rows that a block gathers
constexpr int LOADS = 4;  // rows that are on their way to a thread that adds them

struct alignas(VECTOR * sizeof(real)) Pack {
    real v[VECTOR];
};

// sums[piece, j] = sum over places start[piece] <= i < start[piece + 1] of values[order[i], j]. A thread
// takes VECTOR neighbouring columns, `across` threads take a row, and as many sets of them as there is
// room for take turns at the places; their sums are added in the order of the sets. Launched with 128
// threads.
extern "C" __global__ void __launch_bounds__(128) add_rows(
    const real* __restrict__ values, const long long* __restrict__ order,
    const long long* __restrict__ start, int width, int across, double* __restrict__ sums) {
    const int column = threadIdx.x % across, set = threadIdx.x / across, sets = blockDim.x / across;
    const int packs = width / VECTOR, p = blockIdx.y * across + column;
    const long long to = start[blockIdx.x + 1];
    double sum[VECTOR] = {};
    if (p < packs) {
        for (long long i = start[blockIdx.x] + set; i < to; i += LOADS * sets) {
            Pack own[LOADS] = {};
#pragma unroll
            for (int a = 0; a < LOADS; ++a) {
                const long long at = i + a * sets;
                if (at < to) { own[a] = reinterpret_cast<const Pack*>(values)[order[at] * packs + p]; }
            }
#pragma unroll
            for (int a = 0; a < LOADS; ++a) {
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) { sum[v] += double(own[a].v[v]); }
            }
        }
    }
    __shared__ double parts[VECTOR][128];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) { parts[v][threadIdx.x] = sum[v]; }
    __syncthreads();
    if (set || p >= packs) { return; }
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        for (int other = 1; other < sets; ++other) { sum[v] += parts[v][other * across + column]; }
        sums[(long long)blockIdx.x * width + p * VECTOR + v] = sum[v];
    }
}

// to[row, i] = sum over start[i] <= e < start[i + 1] of from[row, order[e]]. A block takes ROWS rows, so
// that what a load brings of a row is near when other columns read it. `from` has `below` columns,
// `to` has `above`.
extern "C" __global__ void __launch_bounds__(1024) gather(
    const real* __restrict__ from, const int* __restrict__ start, const int* __restrict__ order,
    long long rows, int below, int above, int narrow, real* __restrict__ to) {
    const long long first = (long long)blockIdx.x * ROWS;
    for (int i = threadIdx.x; i < above; i += blockDim.x) {
        real sums[ROWS] = {};
        for (int e = start[i]; e < start[i + 1]; ++e) {
            const int place = order[e];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (first + r < rows) { sums[r] += from[(first + r) * below + place]; }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (first + r < rows) { to[(first + r) * above + i] = narrowed(sums[r], narrow); }
        }
    }
}
