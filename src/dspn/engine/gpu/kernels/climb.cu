// The upward pass of any template: structure is data. A block takes a sequence, a thread a node.
//
// Compiled with -DLOGS=0 for linear arithmetic, where the outputs of a group are divided by the power
// of two below the largest, or with -DLOGS=1 for logarithms, where the largest is subtracted. Both in
// double precision.

// Steps of nodes that do not read each other, five numbers for each: the first of its nodes, their
// number, the number of children of each, the first edge, and whether they are sums. Edge e of node i
// is number first + e * number + i, so that neighbours read neighbours.
struct Part {
    const int* step;
    const int* node;
    const int* child;
    const double* weight;
    int steps;
};

__device__ __forceinline__ double product(const Part& part, int at, int count, int width,
                                          const double* V) {
    double found = LOGS ? 0.0 : 1.0;
#pragma unroll 4
    for (int e = 0; e < width; ++e) {
        const double own = V[part.child[at + e * count]];
        if (LOGS) { found += own; } else { found *= own; }
    }
    return found;
}

__device__ __forceinline__ double mixture(const Part& part, int at, int count, int width,
                                          const double* V) {
    double high = -1.0 / 0.0, sum = 0;
    if (LOGS) {
        for (int e = 0; e < width; ++e) {
            const int edge = at + e * count;
            high = fmax(high, part.weight[edge] + V[part.child[edge]]);
        }
        if (!(high > -1.0 / 0.0)) { return high; }
    }
#pragma unroll 4
    for (int e = 0; e < width; ++e) {
        const int edge = at + e * count;
        const double weight = part.weight[edge], own = V[part.child[edge]];
        sum += LOGS ? exp(weight + own - high) : weight * own;
    }
    return LOGS ? log(sum) + high : sum;
}

__device__ __forceinline__ void run(const Part& part, double* V, double& low) {
    for (int s = 0; s < part.steps; ++s) {
        const int* step = part.step + 5 * s;
        const int first = step[0], count = step[1], width = step[2], edge = step[3];
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const double found = step[4] ? mixture(part, edge + i, count, width, V)
                                         : product(part, edge + i, count, width, V);
            V[part.node[first + i]] = found;
            low = found < low ? found : low;
        }
        __syncthreads();
    }
}

// What the slice itself gives are `coefficients`: node coefficient[l] has the value table[slot[row] *
// coefficients + l]. Position p of the interface belongs to group group_of[p], whose outputs are
// group_output[group_start[g]] and those behind it; `sources` lists, group by group, the
// groups that it reads. `results` has the root's value for each sequence and, for each group that
// the root reads, its divisor: an exponent (in the first of three terms) or a total of logarithms;
// then the least value met.
extern "C" __global__ void climb(
    const int* __restrict__ structure, const double* __restrict__ weights,
    const int* __restrict__ sizes,
    const int* __restrict__ coefficient, int coefficients, const double* __restrict__ table,
    const double* __restrict__ bottom_table, const int* __restrict__ slot,
    const int* __restrict__ inputs,
    const int* __restrict__ outputs, const int* __restrict__ top_inputs, int k,
    const int* __restrict__ group_of, const int* __restrict__ group_start,
    const int* __restrict__ group_output, const int* __restrict__ source_start,
    const int* __restrict__ sources, int groups, int nodes, int root,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction, int count,
    double* __restrict__ results) {
    extern __shared__ double shared[];
    double* V = shared;
    double* vector = V + nodes;
    double* largest = vector + k;
    double* totals = largest + groups;       // (groups, 3)
    double* before = totals + 3 * groups;    // (groups, 3)
    double* lows = before + 3 * groups;      // (32)
    auto part_at = [&](int p) {
        const int* own = sizes + 5 * p;
        return Part{structure + own[0], structure + own[1], structure + own[2], weights + own[3],
                    own[4]};
    };
    const Part bottom_part = part_at(0), template_part = part_at(1), top_part = part_at(2);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int sequence = blockIdx.x;
    const int length = lengths[sequence];
    const double one = LOGS ? 0.0 : 1.0;
    double low = one;
    for (int i = threadIdx.x; i < 6 * groups; i += blockDim.x) { totals[i] = 0; }
    for (int i = threadIdx.x; i < nodes; i += blockDim.x) { V[i] = one; }
    __syncthreads();
    for (int h = 0; h < length; ++h) {
        const long long row = first[sequence] + (long long)direction * h;
        const double* own = (h ? table : bottom_table) + (long long)slot[row] * coefficients;
        for (int l = threadIdx.x; l < coefficients; l += blockDim.x) {
            const double found = own[l];
            V[coefficient[l]] = found;
            low = found < low ? found : low;
        }
        if (h) {
            for (int p = threadIdx.x; p < k; p += blockDim.x) { V[inputs[p]] = vector[p]; }
        }
        __syncthreads();
        if (h) { run(template_part, V, low); } else { run(bottom_part, V, low); }
        for (int g = warp; g < groups; g += warps) {
            double high = LOGS ? -1.0 / 0.0 : 0.0;
            for (int i = group_start[g] + lane; i < group_start[g + 1]; i += 32) {
                high = fmax(high, V[group_output[i]]);
            }
            for (int step = 16; step; step /= 2) {
                high = fmax(high, __shfl_xor_sync(EVERY_LANE, high, step));
            }
            if (lane) { continue; }
            double divisor = 0, own_log = 0;
            if (LOGS) {
                divisor = own_log = high > -1.0 / 0.0 ? high : 0.0;
            } else if (high > 0) {
                const int e = ilogb(high);
                own_log = e;
                divisor = ldexp(1.0, -e);
            } else {
                divisor = 1;
            }
            largest[g] = divisor;
            for (int term = 0; term < 3; ++term) { before[3 * g + term] = totals[3 * g + term]; }
            // Totals follow below, when all groups have kept theirs.
            totals[3 * g] = own_log;
        }
        __syncthreads();
        for (int g = threadIdx.x; g < groups; g += blockDim.x) {
            double sum[3] = {totals[3 * g], 0, 0};
            for (int s = source_start[g]; h && s < source_start[g + 1]; ++s) {
                for (int term = 0; term < 3; ++term) { add(sum, before[3 * sources[s] + term]); }
            }
            for (int term = 0; term < 3; ++term) { totals[3 * g + term] = sum[term]; }
        }
        for (int p = threadIdx.x; p < k; p += blockDim.x) {
            const double value = V[outputs[p]], divisor = largest[group_of[p]];
            vector[p] = LOGS ? value - divisor : value * divisor;
        }
        __syncthreads();
    }
    for (int p = threadIdx.x; p < k; p += blockDim.x) { V[top_inputs[p]] = vector[p]; }
    __syncthreads();
    run(top_part, V, low);
    low = lowest_of_block(low, lows);
    if (threadIdx.x == 0) {
        results[sequence] = V[root];
        results[count + sequence] = low;
    }
    for (int i = threadIdx.x; i < 3 * groups; i += blockDim.x) {
        results[(2LL + i) * count + sequence] = totals[i];
    }
}
