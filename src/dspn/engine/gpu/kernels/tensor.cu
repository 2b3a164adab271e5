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
typedef unsigned short half_t;

__device__ __forceinline__ int exponent_of(float x) {
    return int((__float_as_uint(x) >> 23) & 255) - 127;
}

__device__ __forceinline__ float power_of_two(int e) {
    e = min(max(e, -126), 126);
    return __uint_as_float((unsigned)(e + 127) << 23);
}

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
    int largest[2][ROWS][WARPS];
};

// What a thread knows of its two sequences; entry (r, t, c) of `value` is sequence 8 r + lane / 4 and
// node 16 warp + 8 t + 2 (lane % 4) + c.
struct Lane {
    int warp, lane, row, column;
    int sequence[2], length[2];
    long long start[2];
};

__device__ __forceinline__ Lane find_lane(
    const long long* first, const int* lengths, int count) {
    Lane own;
    own.warp = threadIdx.x / 32;
    own.lane = threadIdx.x % 32;
    own.row = own.lane / 4;
    own.column = 16 * own.warp + 2 * (own.lane % 4);
    for (int r = 0; r < 2; ++r) {
        own.sequence[r] = blockIdx.x * ROWS + own.row + 8 * r;
        const bool there = own.sequence[r] < count;
        own.length[r] = there ? lengths[own.sequence[r]] : 0;
        own.start[r] = there ? first[own.sequence[r]] : 0;
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

__device__ __forceinline__ void store_rows(Shared& shared, int turn, const Lane& own,
                                           const float (*value)[2][2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            unsigned high, low;
            split(value[r][t][0], value[r][t][1], high, low);
            const int row = own.row + 8 * r, column = own.column + 8 * t;
            *reinterpret_cast<unsigned*>(&shared.high[turn][row][column]) = high;
            *reinterpret_cast<unsigned*>(&shared.low[turn][row][column]) = low;
        }
    }
}

__device__ __forceinline__ void measure(Shared& shared, int turn, const Lane& own,
                                        const float (*value)[2][2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float high = fmaxf(fmaxf(value[r][0][0], value[r][0][1]),
                                 fmaxf(value[r][1][0], value[r][1][1]));
        int e = exponent_of(high);
        e = max(e, __shfl_xor_sync(0xffffffffu, e, 1));
        e = max(e, __shfl_xor_sync(0xffffffffu, e, 2));
        if (own.lane % 4 == 0) { shared.largest[turn][own.row + 8 * r][own.warp] = e; }
    }
}

__device__ __forceinline__ int measured(const Shared& shared, int turn, int row) {
    int e = -126;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) { e = max(e, shared.largest[turn][row][w]); }
    return e;
}

// found[r][t][c]: the product of the shared rows with the warp's columns.
__device__ __forceinline__ void mix(const Shared& shared, int turn, const Lane& own,
                                    const unsigned (*high)[2][2], const unsigned (*low)[2][2],
                                    float (*found)[2][2]) {
    float sums[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}, rest[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const int row = own.lane % 16, column = 8 * (own.lane / 16);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        unsigned a[4], b[4];
        load_four(a, &shared.high[turn][row][16 * tile + column]);
        load_four(b, &shared.low[turn][row][16 * tile + column]);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            multiply(sums[t], a, high[tile][t][0], high[tile][t][1]);
            multiply(rest[t], a, low[tile][t][0], low[tile][t][1]);
            multiply(rest[t], b, high[tile][t][0], high[tile][t][1]);
        }
    }
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                found[r][t][c] = sums[t][2 * r + c] + rest[t][2 * r + c];
            }
        }
    }
}

__device__ __forceinline__ void load_pairs(const float* from, const Lane& own, float (*to)[2]) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        const float2 two = *reinterpret_cast<const float2*>(from + own.column + 8 * t);
        to[t][0] = two.x;
        to[t][1] = two.y;
    }
}

__device__ __forceinline__ void store_pairs(float* to, const Lane& own, const float (*from)[2]) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        *reinterpret_cast<float2*>(to + own.column + 8 * t) = make_float2(from[t][0], from[t][1]);
    }
}

// As `forward` of scan.cu, with transition[j * K + i].
extern "C" __global__ void __launch_bounds__(THREADS, 2) forward(
    const float* __restrict__ transition, const float* __restrict__ table,
    const float* __restrict__ bottom_table, const float* __restrict__ top,
    const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, float under,
    float* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ results) {
    __shared__ Shared shared;
    const Lane own = find_lane(first, lengths, count);
    const int longest = lengths[blockIdx.x * ROWS];
    unsigned high[TILES][2][2], low[TILES][2][2];
    load_matrix(transition, own, high, low);
    float value[2][2][2], ahead[2][2][2];
    int slots[2], scale[2] = {0, 0};
    long long total[2] = {0, 0};
    float least = 1;
    auto row_at = [&](int r, int h) { return own.start[r] + (long long)direction * h; };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            ahead[r][t][0] = ahead[r][t][1] = value[r][t][0] = value[r][t][1] = 0;
        }
        if (own.length[r]) {
            load_pairs(bottom_table + (long long)slot[row_at(r, 0)] * K, own, ahead[r]);
        }
        slots[r] = own.length[r] > 1 ? slot[row_at(r, 1)] : 0;
    }
    for (int h = 0; h < longest; ++h) {
        const bool even = h % 2 == 0;
        float now[2][2][2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                now[r][t][0] = ahead[r][t][0];
                now[r][t][1] = ahead[r][t][1];
            }
            if (h + 1 < own.length[r]) { load_pairs(table + (long long)slots[r] * K, own, ahead[r]); }
            slots[r] = h + 2 < own.length[r] ? slot[row_at(r, h + 2)] : 0;
        }
        float mixed[2][2][2];
        if (h) { mix(shared, (h + 1) & 1, own, high, low, mixed); }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (h >= own.length[r]) { continue; }
            float unit = 1;
            scale[r] = 0;
            if (even && h) {
                scale[r] = measured(shared, (h / 2 + 1) & 1, own.row + 8 * r);
                unit = power_of_two(-scale[r]);
                total[r] += scale[r];
            }
#pragma unroll
            for (int t = 0; t < 2; ++t) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const float y = h ? mixed[r][t][c] : 1.0f;
                    value[r][t][c] = now[r][t][c] * unit * y + under;
                    if (own.column + 8 * t + c < k) { least = fminf(least, value[r][t][c]); }
                }
            }
            if (vectors != nullptr) {
                store_pairs(vectors + row_at(r, h) * K, own, value[r]);
                if (own.column == 0) { exponents[row_at(r, h)] = scale[r]; }
            }
        }
        store_rows(shared, h & 1, own, value);
        if (even) { measure(shared, (h / 2) & 1, own, value); }
        __syncthreads();
    }
    // The least value is that of the thread's two sequences together: at worst one is doubted in vain.
    __shared__ double sums[ROWS][WARPS];
    __shared__ float lows[ROWS][WARPS];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        double sum = 0;
#pragma unroll
        for (int t = 0; t < 2; ++t) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                sum += double(value[r][t][c]) * double(top[own.column + 8 * t + c]);
            }
        }
        float lowest = least;
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            lowest = fminf(lowest, __shfl_xor_sync(0xffffffffu, lowest, step));
        }
        if (own.lane % 4 == 0) {
            sums[own.row + 8 * r][own.warp] = sum;
            lows[own.row + 8 * r][own.warp] = lowest;
        }
    }
    __syncthreads();
    if (own.column == 0) {
        for (int r = 0; r < 2; ++r) {
            if (own.sequence[r] >= count) { continue; }
            double sum = 0;
            float lowest = 1;
            for (int w = 0; w < WARPS; ++w) {
                sum += sums[own.row + 8 * r][w];
                lowest = fminf(lowest, lows[own.row + 8 * r][w]);
            }
            results[own.sequence[r]] = sum;
            results[(long long)count + own.sequence[r]] = double(total[r]);
            results[2LL * count + own.sequence[r]] = double(lowest);
        }
    }
}

// As `backward` of scan.cu, with transposed[i * K + j].
extern "C" __global__ void __launch_bounds__(THREADS, 2) backward(
    const float* __restrict__ transposed, const float* __restrict__ table,
    const float* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const float* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const float* __restrict__ share,
    float* __restrict__ posteriors, float* __restrict__ uses, int* __restrict__ highest) {
    __shared__ Shared shared;
    const Lane own = find_lane(first, lengths, count);
    const int longest = lengths[blockIdx.x * ROWS];
    unsigned high[TILES][2][2], low[TILES][2][2];
    load_matrix(transposed, own, high, low);
    float derivative[2][2][2], ahead_table[2][2][2], ahead_vector[2][2][2], factor[2];
    int slots[2], ahead_exponent[2], lack[2] = {0, 0}, most[2] = {0, 0};
    bool counts[2];
    auto row_at = [&](int r, int h) { return own.start[r] + (long long)direction * h; };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const bool there = own.length[r] > 0;
        const float weight = there ? share[own.sequence[r]] : 0.0f;
        counts[r] = weight > 0;
        factor[r] = there ? float(double(weight) / root[own.sequence[r]]) : 0.0f;
        const int h = own.length[r] - 1;
#pragma unroll
        for (int t = 0; t < 2; ++t) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                derivative[r][t][c] = there ? top[own.column + 8 * t + c] : 0.0f;
                ahead_table[r][t][c] = ahead_vector[r][t][c] = 0;
            }
        }
        if (h > 0) { load_pairs(table + (long long)slot[row_at(r, h)] * K, own, ahead_table[r]); }
        if (h >= 0) { load_pairs(vectors + row_at(r, h) * K, own, ahead_vector[r]); }
        ahead_exponent[r] = h >= 0 ? exponents[row_at(r, h)] : 0;
        slots[r] = h > 1 ? slot[row_at(r, h - 1)] : 0;
    }
    for (int s = 0; s < longest; ++s) {
        const bool even = s % 2 == 0;
        float handed[2][2][2];
        int now_exponent[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int h = own.length[r] - 1 - s;
            now_exponent[r] = ahead_exponent[r];
            const float unit = power_of_two(lack[r]) * factor[r];
            const float below = power_of_two(-now_exponent[r]) * unit;
            if (h >= 0) { most[r] = max(most[r], lack[r]); }
            float posterior[2][2], use[2][2];
#pragma unroll
            for (int t = 0; t < 2; ++t) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    handed[r][t][c] = h > 0 ? ahead_table[r][t][c] * derivative[r][t][c] : 0.0f;
                    posterior[t][c] =
                        counts[r] ? ahead_vector[r][t][c] * derivative[r][t][c] * unit : 0.0f;
                    use[t][c] = counts[r] && h ? handed[r][t][c] * below : 0.0f;
                }
            }
            if (h >= 0) {
                store_pairs(posteriors + row_at(r, h) * K, own, posterior);
                store_pairs(uses + row_at(r, h) * K, own, use);
            }
        }
        store_rows(shared, s & 1, own, handed);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int h = own.length[r] - 1 - s;
            if (h > 1) { load_pairs(table + (long long)slots[r] * K, own, ahead_table[r]); }
            if (h > 0) {
                load_pairs(vectors + row_at(r, h - 1) * K, own, ahead_vector[r]);
                ahead_exponent[r] = exponents[row_at(r, h - 1)];
            }
            slots[r] = h > 2 ? slot[row_at(r, h - 2)] : 0;
        }
        float mixed[2][2][2];
        mix(shared, s & 1, own, high, low, mixed);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int h = own.length[r] - 1 - s;
            int e = 0;
            if (even && s) { e = measured(shared, (s / 2 + 1) & 1, own.row + 8 * r); }
            if (h > 0) {
                const float unit = power_of_two(-e);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int c = 0; c < 2; ++c) { derivative[r][t][c] = mixed[r][t][c] * unit; }
                }
                lack[r] += e - now_exponent[r];
            }
        }
        if (even) { measure(shared, (s / 2) & 1, own, derivative); }
    }
    if (own.column == 0) {
        for (int r = 0; r < 2; ++r) {
            if (own.sequence[r] < count) { highest[own.sequence[r]] = most[r]; }
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
