// One path through each sequence of a chain: the best one, or one drawn from the posterior. Both in
// double precision.

// Log values of the best path that ends in each output, divided by the largest of the slice, whose
// logarithms `totals` adds up. transition[i * k + j] is the log weight of input i in the sum of output j, in
// matrix which[row] where there are several. Slice h of a sequence, row first + h * direction, has the log
// coefficients of rows codes[row, c] of the table, one for each chunk. back[row, j] is the best input of
// output j. A block takes a sequence.
extern "C" __global__ void find_best(
    const double* __restrict__ transition, const int* __restrict__ which,
    const double* __restrict__ table, const double* __restrict__ bottom_table, const int* __restrict__ codes, int chunks, int k,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction, int count,
    int* __restrict__ back, double* __restrict__ last, double* __restrict__ totals) {
    extern __shared__ double shared[];
    double* before = shared;
    double* now = before + k;
    double* highs = now + k;    // (2, 32)
    const int sequence = blockIdx.x;
    double total[3] = {0, 0, 0};
    for (int h = 0; h < lengths[sequence]; ++h) {
        const long long row = first[sequence] + (long long)direction * h;
        const double* own_table = h ? table : bottom_table;
        const double* weights = transition + (which == nullptr ? 0LL : which[row]) * k * k;
        double high = -1.0 / 0.0;
        for (int j = threadIdx.x; j < k; j += blockDim.x) {
            double found = 0;
            if (h) {
                int best = 0;
                found = weights[j] + before[0];
                for (int i = 1; i < k; ++i) {
                    const double other = weights[(long long)i * k + j] + before[i];
                    if (other > found) {
                        found = other;
                        best = i;
                    }
                }
                back[row * k + j] = best;
            }
            for (int c = 0; c < chunks; ++c) {
                found += own_table[(long long)codes[row * chunks + c] * k + j];
            }
            now[j] = found;
            high = fmax(high, found);
        }
        high = highest_of_block(high, highs + 32 * (h & 1));
        if (!(high > -1.0 / 0.0)) { high = 0; }
        for (int j = threadIdx.x; j < k; j += blockDim.x) { before[j] = now[j] - high; }
        if (threadIdx.x == 0) { add(total, high); }
        __syncthreads();
    }
    for (int j = threadIdx.x; j < k; j += blockDim.x) { last[(long long)sequence * k + j] = before[j]; }
    if (threadIdx.x == 0) {
        for (int term = 0; term < 3; ++term) { totals[(long long)term * count + sequence] = total[term]; }
    }
}

// From the output that the top has chosen down to the bottom; a thread takes a sequence.
extern "C" __global__ void follow(
    const int* __restrict__ back, int k, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, const long long* __restrict__ chosen,
    long long* __restrict__ path) {
    const int sequence = blockIdx.x * blockDim.x + threadIdx.x;
    if (sequence >= count) { return; }
    long long j = chosen[sequence];
    for (int h = lengths[sequence] - 1; h >= 0; --h) {
        const long long row = first[sequence] + (long long)direction * h;
        path[row] = j;
        if (h) { j = back[row * k + j]; }
    }
}

// A number in [0, 1) that follows from seed, height and node alone, as in `general`.
__device__ __forceinline__ double uniform(unsigned long long seed, int height, int node) {
    const unsigned long long golden = 0x9E3779B97F4A7C15ull;
    unsigned long long state = seed + (unsigned long long)(node + 1LL) * golden;
    for (int turn = 0; turn < 2; ++turn) {
        state ^= turn ? golden : (unsigned long long)(height + 1) * 0xBF58476D1CE4E5B9ull;
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
        state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
        state ^= state >> 31;
    }
    return double(state >> 11) * 0x1p-53;
}

// Inputs drawn in proportion to weight times value, from the output chosen by the top down.
// transition[j * width + i] is the weight of input i in the sum of output j, which is node sum_node[j], in
// matrix which[row] where there are several, and vectors[row, i] are the values of the upward pass. A warp takes a sequence, a lane neighbouring inputs.
extern "C" __global__ void draw(
    const double* __restrict__ transition, const int* __restrict__ which,
    const double* __restrict__ vectors, int width, int k,
    const int* __restrict__ sum_node, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count,
    const unsigned long long* __restrict__ seeds, const long long* __restrict__ chosen,
    long long* __restrict__ path) {
    const int sequence = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (sequence >= count) { return; }
    const int each = (k + 31) / 32, from = min(lane * each, k), to = min(from + each, k);
    int j = int(chosen[sequence]);
    for (int h = lengths[sequence] - 1; h >= 0; --h) {
        const long long row = first[sequence] + (long long)direction * h;
        if (lane == 0) { path[row] = j; }
        if (h == 0) { break; }
        const long long matrix = which == nullptr ? 0 : which[row];
        const double* weights = transition + (matrix * width + j) * width;
        const double* values = vectors + (row - direction) * width;
        double own = 0;
        for (int i = from; i < to; ++i) { own += weights[i] * values[i]; }
        // Sums over the lanes up to each one, in a fixed order.
        double up_to = own;
        for (int step = 1; step < 32; step *= 2) {
            const double other = __shfl_sync(EVERY_LANE, up_to, lane < step ? lane : lane - step);
            if (lane >= step) { up_to += other; }
        }
        const double whole = __shfl_sync(EVERY_LANE, up_to, 31);
        const double target = uniform(seeds[sequence], h, sum_node[j]) * whole;
        const unsigned reached = __ballot_sync(EVERY_LANE, up_to > target);
        const unsigned possible = __ballot_sync(EVERY_LANE, own > 0);
        // Rounding may leave the target at the whole sum: then the last input that is possible.
        int taker = reached ? __ffs(int(reached)) - 1 : (possible ? 31 - __clz(int(possible)) : 0);
        if (!((possible >> taker) & 1) && possible) { taker = 31 - __clz(int(possible)); }
        const double below = __shfl_sync(EVERY_LANE, up_to, lane ? lane - 1 : 0);
        int found = from;
        if (lane == taker) {
            double sum = lane ? below : 0.0;
            for (int i = from; i < to; ++i) {
                const double share = weights[i] * values[i];
                if (share > 0) { found = i; }
                sum += share;
                if (share > 0 && sum > target) { break; }
            }
        }
        j = __shfl_sync(EVERY_LANE, found, taker);
    }
}
