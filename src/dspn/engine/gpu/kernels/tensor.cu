// The passes of `scan.cu` for many sequences of a chain of 64 or 128 nodes, on tensor cores.
//
// Compiled with -DK=32, 64 or 128 (32 for `outer` only). A block takes 16 sequences, a warp 16 nodes
// of them. A float32 number is the sum of two of bfloat16, and products of the two smaller parts are
// left out: errors are below 2^-16 of a term and have either sign.

constexpr int ROWS = 16;
constexpr int WARPS = K / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int TILES = K / 16;
constexpr int STRIDE = K + 8;
constexpr int PART = WARPS < 4 ? WARPS : 4;  // exponents that one load takes
typedef unsigned short half_t;

__device__ __forceinline__ unsigned pair(float x, float y) {
    unsigned found;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(y), "f"(x));
    return found;
}

__device__ __forceinline__ void split(float x, float y, unsigned& high, unsigned& low) {
    high = pair(x, y);
    low = pair(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xffff0000u));
}

__device__ __forceinline__ void multiply(float* sum, const unsigned* a, unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load_four(unsigned* to, const half_t* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_four_turned(unsigned* to, const half_t* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// Rows of 16 sequences in two parts of bfloat16, twice, and the largest exponents by warp.
struct Shared {
    alignas(16) half_t high[2][ROWS][STRIDE];
    alignas(16) half_t low[2][ROWS][STRIDE];
    alignas(16) int largest[2][ROWS][WARPS];
};

// What a thread knows of its two sequences. Entry (r, n) of `value` is sequence 8 r + lane / 4 and node
// 16 warp + 8 (n / 2) + 2 (lane % 4) + n % 2: two pairs of neighbours.
struct Lane {
    int warp, lane, row, column;
    Slices slices[2];
    __device__ __forceinline__ int sequence(int r) const { return blockIdx.x * ROWS + row + 8 * r; }
    __device__ __forceinline__ int node(int n) const { return column + 8 * (n / 2) + n % 2; }
};

__device__ __forceinline__ Lane find_lane(
    const long long* first, const int* lengths, int direction, int count) {
    Lane own;
    own.warp = threadIdx.x / 32;
    own.lane = threadIdx.x % 32;
    own.row = own.lane / 4;
    own.column = 16 * own.warp + 2 * (own.lane % 4);
    for (int r = 0; r < 2; ++r) {
        own.slices[r] = find_slices(first, lengths, direction, own.sequence(r), count);
    }
    return own;
}

// Fragments of a matrix [to][from] for the warp's 16 columns `to`.
__device__ __forceinline__ void load_matrix(
    const float* __restrict__ matrix, const Lane& own, unsigned (*high)[2][2], unsigned (*low)[2][2]) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            const int to = 16 * own.warp + 8 * t + own.lane / 4;
#pragma unroll
            for (int b = 0; b < 2; ++b) {
                const int from = 16 * tile + 8 * b + 2 * (own.lane % 4);
                split(matrix[to * K + from], matrix[to * K + from + 1], high[tile][t][b],
                      low[tile][t][b]);
            }
        }
    }
}

__device__ __forceinline__ void load_pairs(const float* from, const Lane& own, float* to) {
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
        const float2 two = *reinterpret_cast<const float2*>(from + own.node(n));
        to[n] = two.x;
        to[n + 1] = two.y;
    }
}

__device__ __forceinline__ void store_pairs(float* to, const Lane& own, const float* from) {
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
        *reinterpret_cast<float2*>(to + own.node(n)) = make_float2(from[n], from[n + 1]);
    }
}

__device__ __forceinline__ void store_row(Shared& shared, int turn, const Lane& own, int r,
                                          const float* value) {
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
        unsigned high, low;
        split(value[n], value[n + 1], high, low);
        *reinterpret_cast<unsigned*>(&shared.high[turn][own.row + 8 * r][own.node(n)]) = high;
        *reinterpret_cast<unsigned*>(&shared.low[turn][own.row + 8 * r][own.node(n)]) = low;
    }
}

__device__ __forceinline__ void measure(Shared& shared, int turn, const Lane& own, int r, int e) {
    e = max(e, __shfl_xor_sync(EVERY_LANE, e, 1));
    e = max(e, __shfl_xor_sync(EVERY_LANE, e, 2));
    if (own.lane % 4 == 0) { shared.largest[turn][own.row + 8 * r][own.warp] = e; }
}

__device__ __forceinline__ int measured(const Shared& shared, int turn, int row) {
    struct alignas(4 * PART) Part {
        int e[PART];
    };
    int e = -126;
#pragma unroll
    for (int w = 0; w < WARPS; w += PART) {
        const Part own = *reinterpret_cast<const Part*>(&shared.largest[turn][row][w]);
#pragma unroll
        for (int i = 0; i < PART; ++i) { e = max(e, own.e[i]); }
    }
    return e;
}

// found[r][n]: the product of the shared rows with the warp's columns.
__device__ __forceinline__ void mix(const Shared& shared, int turn, const Lane& own,
                                    const unsigned (*high)[2][2], const unsigned (*low)[2][2],
                                    float (*found)[4]) {
    float sums[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}, rest[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const int row = own.lane % 16, column = 8 * (own.lane / 16);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        unsigned a[4], b[4];
        load_four(a, &shared.high[turn][row][16 * tile + column]);
        load_four(b, &shared.low[turn][row][16 * tile + column]);
        // What is added to the same numbers does not follow at once.
#pragma unroll
        for (int t = 0; t < 2; ++t) { multiply(rest[t], a, low[tile][t][0], low[tile][t][1]); }
#pragma unroll
        for (int t = 0; t < 2; ++t) { multiply(sums[t], a, high[tile][t][0], high[tile][t][1]); }
#pragma unroll
        for (int t = 0; t < 2; ++t) { multiply(rest[t], b, high[tile][t][0], high[tile][t][1]); }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            found[r][n] = sums[n / 2][2 * r + n % 2] + rest[n / 2][2 * r + n % 2];
        }
    }
}

// As `forward` of scan.cu, with transition[j * K + i] and no tables.
extern "C" __global__ void __launch_bounds__(THREADS, 2) forward(
    const float* __restrict__ transition, const int* __restrict__, const float* __restrict__ table,
    const float* __restrict__ bottom_table, const float* __restrict__ top,
    const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, float under,
    float* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ results) {
    __shared__ Shared shared;
    const Lane own = find_lane(first, lengths, direction, count);
    const int longest = lengths[blockIdx.x * ROWS];
    unsigned high[TILES][2][2], low[TILES][2][2];
    load_matrix(transition, own, high, low);
    auto load = [&](const float* row, float* to) { load_pairs(row, own, to); };
    Coefficients<1, 4, true> ahead[2];
    float value[2][4], least = 1;
    long long total[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int n = 0; n < 4; ++n) { value[r][n] = 0; }
        ahead[r].find(0, 0, own.slices[r], slot);
        ahead[r].fetch(0, 0, own.slices[r], slot, bottom_table, K, load);
    }
    for (int h = 0; h < longest; ++h) {
        const bool even = h % 2 == 0;
        float now[2][4], mixed[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int n = 0; n < 4; ++n) { now[r][n] = ahead[r].value[0][n]; }
            ahead[r].fetch(0, h + 1, own.slices[r], slot, table, K, load);
        }
        if (h) { mix(shared, (h + 1) & 1, own, high, low, mixed); }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (h >= own.slices[r].length) { continue; }
            int scale = 0;
            if (even && h) {
                scale = measured(shared, (h / 2 + 1) & 1, own.row + 8 * r);
                total[r] += scale;
            }
            const float unit = power_of_two(-scale);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                value[r][n] = now[r][n] * unit * (h ? mixed[r][n] : 1.0f) + under;
                if (own.node(n) < k) { least = fminf(least, value[r][n]); }
            }
            if (vectors != nullptr) {
                const long long row = own.slices[r].row(h);
                store_pairs(vectors + row * K, own, value[r]);
                if (own.column == 0) { exponents[row] = scale; }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            store_row(shared, h & 1, own, r, value[r]);
            if (even) {
                const float largest = fmaxf(fmaxf(value[r][0], value[r][1]), fmaxf(value[r][2], value[r][3]));
                measure(shared, (h / 2) & 1, own, r, exponent_of(largest));
            }
        }
        __syncthreads();
    }
    // The least value is that of the thread's two sequences together: at worst one is doubted in vain.
    __shared__ double sums[ROWS][WARPS];
    __shared__ float lows[ROWS][WARPS];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        double sum = 0;
#pragma unroll
        for (int n = 0; n < 4; ++n) { sum += double(value[r][n]) * double(top[own.node(n)]); }
        float lowest = least;
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(EVERY_LANE, sum, step);
            lowest = fminf(lowest, __shfl_xor_sync(EVERY_LANE, lowest, step));
        }
        if (own.lane % 4 == 0) {
            sums[own.row + 8 * r][own.warp] = sum;
            lows[own.row + 8 * r][own.warp] = lowest;
        }
    }
    __syncthreads();
    if (own.column == 0) {
        for (int r = 0; r < 2; ++r) {
            const int sequence = own.sequence(r);
            if (sequence >= count) { continue; }
            double sum = 0;
            float lowest = 1;
            for (int w = 0; w < WARPS; ++w) {
                sum += sums[own.row + 8 * r][w];
                lowest = fminf(lowest, lows[own.row + 8 * r][w]);
            }
            results[sequence] = sum;
            results[(long long)count + sequence] = double(total[r]);
            results[2LL * count + sequence] = double(lowest);
        }
    }
}

// As `backward` of scan.cu, with transposed[i * K + j] and no tables.
extern "C" __global__ void __launch_bounds__(THREADS, 2) backward(
    const float* __restrict__ transposed, const int* __restrict__, const float* __restrict__ table,
    const float* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const float* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const float* __restrict__ share,
    float* __restrict__ posteriors, float* __restrict__ uses, int* __restrict__ highest) {
    __shared__ Shared shared;
    const Lane own = find_lane(first, lengths, direction, count);
    const int longest = lengths[blockIdx.x * ROWS];
    unsigned high[TILES][2][2], low[TILES][2][2];
    load_matrix(transposed, own, high, low);
    auto load = [&](const float* row, float* to) { load_pairs(row, own, to); };
    Coefficients<1, 4, false> ahead[2];
    float derivative[2][4], ahead_vector[2][4];
    int ahead_exponent[2];
    unsigned most[2] = {0, 0};
    bool counts[2];
    auto fetch = [&](int r, int step) {
        const Slices& slices = own.slices[r];
        ahead[r].fetch(0, step, slices, slot, table, K, load);
        const int h = slices.length - 1 - step;
        if (h >= 0) { load_pairs(vectors + slices.row(h) * K, own, ahead_vector[r]); }
        ahead_exponent[r] = h >= 0 ? exponents[slices.row(h)] : 0;
    };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float weight = own.sequence(r) < count ? share[own.sequence(r)] : 0.0f;
        counts[r] = weight > 0;
        const float factor = counts[r] ? float(double(weight) / root[own.sequence(r)]) : 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            derivative[r][n] = counts[r] ? factor * top[own.node(n)] : 0.0f;
            ahead_vector[r][n] = 0;
        }
        ahead[r].find(0, 0, own.slices[r], slot);
        fetch(r, 0);
    }
    for (int s = 0; s < longest; ++s) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int h = own.slices[r].length - 1 - s;
            const float unit = power_of_two(-ahead_exponent[r]);
            float handed[4], posterior[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                handed[n] = counts[r] ? ahead[r].value[0][n] * unit * derivative[r][n] : 0.0f;
                posterior[n] = counts[r] ? ahead_vector[r][n] * derivative[r][n] : 0.0f;
                if (h >= 0) { most[r] = max(most[r], bits_of(derivative[r][n])); }
            }
            if (h >= 0) {
                store_pairs(posteriors + own.slices[r].row(h) * K, own, posterior);
                store_pairs(uses + own.slices[r].row(h) * K, own, handed);
            }
            store_row(shared, s & 1, own, r, handed);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; ++r) { fetch(r, s + 1); }
        float mixed[2][4];
        mix(shared, s & 1, own, high, low, mixed);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                if (s + 1 < own.slices[r].length) { derivative[r][n] = mixed[r][n]; }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) { measure(shared, 0, own, r, exponent_in(most[r])); }
    __syncthreads();
    if (own.column == 0) {
        for (int r = 0; r < 2; ++r) {
            if (own.sequence(r) < count) { highest[own.sequence(r)] = measured(shared, 0, own.row + 8 * r); }
        }
    }
}

// parts[p, j, i] = sum over some rows of left[row, j] * right[row, i]. A block takes rows
// blockIdx.x * 16 G, and on by gridDim.x * 16 G, where G = 8 / (K / 16) groups of warps take 16 rows
// each; p = blockIdx.x * G + group. Launched with 256 threads.
extern "C" __global__ void __launch_bounds__(256) outer(
    const float* __restrict__ left, const float* __restrict__ right, long long rows,
    float* __restrict__ parts) {
    constexpr int G = 8 / TILES, BOTH = ROWS * G, PAIRS = BOTH * K / 2 / 256;
    __shared__ __align__(16) half_t tile[2][2][BOTH][STRIDE];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp / TILES, j = warp % TILES;
    float sums[K / 8][4];
#pragma unroll
    for (int n = 0; n < K / 8; ++n) {
        sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
    }
    float2 ahead[2][PAIRS];
    auto fetch = [&](long long from) {
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            const int at = p * 256 + threadIdx.x, row = at / (K / 2), column = at % (K / 2);
            const bool there = from + row < rows;
            const long long place = (from + row) * (K / 2) + column;
            const float2 none = make_float2(0, 0);
            ahead[0][p] = there ? reinterpret_cast<const float2*>(left)[place] : none;
            ahead[1][p] = there ? reinterpret_cast<const float2*>(right)[place] : none;
        }
    };
    long long from = (long long)blockIdx.x * BOTH;
    const long long step = (long long)gridDim.x * BOTH;
    if (from < rows) { fetch(from); }
    for (; from < rows; from += step) {
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            const int at = p * 256 + threadIdx.x, row = at / (K / 2), column = 2 * (at % (K / 2));
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                unsigned high, low;
                split(ahead[side][p].x, ahead[side][p].y, high, low);
                *reinterpret_cast<unsigned*>(&tile[side][0][row][column]) = high;
                *reinterpret_cast<unsigned*>(&tile[side][1][row][column]) = low;
            }
        }
        __syncthreads();
        if (from + step < rows) { fetch(from + step); }
        // Rows of the product are nodes of `left`: its tile is read turned.
        const int turned = ROWS * group + lane % 8 + 8 * (lane / 16);
        const int column = 16 * j + 8 * ((lane / 8) % 2);
        unsigned a[4], b[4];
        load_four_turned(a, &tile[0][0][turned][column]);
        load_four_turned(b, &tile[0][1][turned][column]);
        const int down = ROWS * group + lane % 16, across = 8 * (lane / 16);
#pragma unroll
        for (int n = 0; n < K / 16; ++n) {
            unsigned c[4], d[4];
            load_four_turned(c, &tile[1][0][down][16 * n + across]);
            load_four_turned(d, &tile[1][1][down][16 * n + across]);
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                multiply(sums[2 * n + t], a, c[2 * t], c[2 * t + 1]);
                multiply(sums[2 * n + t], a, d[2 * t], d[2 * t + 1]);
                multiply(sums[2 * n + t], b, c[2 * t], c[2 * t + 1]);
            }
        }
        __syncthreads();
    }
    float* out = parts + ((long long)blockIdx.x * G + group) * K * K;
#pragma unroll
    for (int n = 0; n < K / 8; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = 16 * j + lane / 4 + 8 * r, column = 8 * n + 2 * (lane % 4);
            *reinterpret_cast<float2*>(out + row * K + column) =
                make_float2(sums[n][2 * r], sums[n][2 * r + 1]);
        }
    }
}
