// The passes of `scan.cu` for many sequences of a chain of 32, 64 or 128 nodes, on tensor cores.
//
// Compiled with -DK=32, 64 or 128, -DTHREADS=n for a block of the passes, and -DWHOLE=1 where the chain has
// K nodes and not fewer, for the smallest is sought among those that are there. A warp takes 16 sequences; two
// warps share the nodes of 128. Vectors stay in registers, where results of products lie as the next product
// reads them, and the matrix lies in shared memory, 16 bytes for each lane and tile. A float32 number is the
// sum of two of bfloat16, and products of the two smaller parts are left out: errors are below 2^-16 of a
// term and have either sign.
//
// With -DGROUP=1, for Hopper, a block has four warps, whose 64 sequences are multiplied together: its tensor
// cores read the matrix from shared memory once for all of them, and while they find the second half of the
// nodes the threads go on with the first.

#ifndef GROUP
#define GROUP 0
#endif

constexpr int ROWS = 16;
constexpr int TILES = K / 16;
constexpr int SHARE = K < 128 || GROUP ? 1 : 2;  // warps that share sequences
constexpr int SETS = THREADS / 32 / SHARE;
constexpr int OWN = TILES / SHARE;  // tiles of a warp's nodes
constexpr int EACH = 4 * OWN;       // numbers of a sequence that a lane has
constexpr int SOME = 8;             // of 32 nodes, which are found together
constexpr int AHEAD = GROUP ? 2 : (K < 64 ? 3 : 1);  // slices whose loads are on their way
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
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load_four_turned(unsigned* to, const half_t* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// What a lane knows of its two sequences. Entry (r, n) of its numbers is sequence 8 r + lane / 4 of the
// warp and node 16 (n / 4) + 4 (lane % 4) + n % 4 of its nodes: four neighbours at a time.
struct Lane {
    int lane, set, part, begin;
    Slices slices[2];
    __device__ __forceinline__ int sequence(int r) const { return begin + lane / 4 + 8 * r; }
    __device__ __forceinline__ long long row(int r, int h) const { return slices[r].row(max(h, 0)); }
    __device__ __forceinline__ int node(int n) const {
        return 16 * (part * OWN + n / 4) + 4 * (lane % 4) + n % 4;
    }
};

__device__ __forceinline__ Lane find_lane(
    const long long* first, const int* lengths, int direction, int count) {
    Lane own;
    own.lane = threadIdx.x % 32;
    own.set = threadIdx.x / 32 / SHARE;
    own.part = threadIdx.x / 32 % SHARE;
    own.begin = ROWS * (blockIdx.x * SETS + own.set);
    for (int r = 0; r < 2; ++r) {
        own.slices[r] = find_slices(first, lengths, direction, own.sequence(r), count);
    }
    return own;
}

__device__ __forceinline__ void take_four(const float4& four, float* to) {
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}

// The lane's numbers `begin` to `begin` + SOME in a row of K.
__device__ __forceinline__ void load_some(const float* row, const Lane& own, int begin, float* to) {
#pragma unroll
    for (int n = 0; n < SOME; n += 4) {
        take_four(*reinterpret_cast<const float4*>(row + own.node(begin + n)), to + n);
    }
}

__device__ __forceinline__ void store_some(float* row, const Lane& own, int begin, const float* from) {
#pragma unroll
    for (int n = 0; n < SOME; n += 4) {
        *reinterpret_cast<float4*>(row + own.node(begin + n)) = {
            from[n], from[n + 1], from[n + 2], from[n + 3]};
    }
}

// What a lane reads of rows of K numbers for the slices to come, some numbers at a time. `load` asks for
// them, `end` ends what is asked for a slice, and after `arrive` the earliest slice is there.
#if GROUP
// In shared memory, for registers are full.
template <int ARRAYS> struct Ahead {
    float4* memory;
    unsigned address;
    __device__ __forceinline__ explicit Ahead(char* from)
        : memory(reinterpret_cast<float4*>(from) + threadIdx.x), address(shared_address(memory)) {}
    static __device__ __forceinline__ int place(int a, int array, int r, int n) {
        return (((a * ARRAYS + array) * 2 + r) * (EACH / 4) + n / 4) * THREADS;
    }
    __device__ __forceinline__ void load(
        int a, int array, int r, int begin, const float* row, const Lane& own) {
#pragma unroll
        for (int n = begin; n < begin + SOME; n += 4) {
            copy_part(address + 16 * place(a, array, r, n), row + own.node(n));
        }
    }
    __device__ __forceinline__ void read(int a, int array, int r, int begin, float* to) const {
#pragma unroll
        for (int n = 0; n < SOME; n += 4) { take_four(memory[place(a, array, r, begin + n)], to + n); }
    }
    __device__ __forceinline__ void end() { end_copies(); }
    __device__ __forceinline__ void arrive() { await_copies<AHEAD - 1>(); }
};
#else
template <int ARRAYS> struct Ahead {
    float value[AHEAD][ARRAYS][2][EACH];
    __device__ __forceinline__ explicit Ahead(char*) {}
    __device__ __forceinline__ void load(
        int a, int array, int r, int begin, const float* row, const Lane& own) {
        load_some(row, own, begin, value[a][array][r] + begin);
    }
    __device__ __forceinline__ void read(int a, int array, int r, int begin, float* to) const {
#pragma unroll
        for (int n = 0; n < SOME; ++n) { to[n] = value[a][array][r][begin + n]; }
    }
    __device__ __forceinline__ void end() {}
    __device__ __forceinline__ void arrive() {}
};
#endif

// Vectors of 16 sequences as products read them.
template <int SIZE> struct Parts {
    unsigned high[SIZE][4], low[SIZE][4];
};

// Vectors that warps hand each other, twice, and the largest exponents of their nodes.
struct Exchange {
    alignas(16) uint4 parts[2][TILES][2][32];
    int largest[2][SHARE][ROWS];
};

__device__ __forceinline__ void meet(const Lane& own) {
    asm volatile("bar.sync %0, %1;" : : "r"(own.set + 1), "r"(32 * SHARE) : "memory");
}

// What a warp finds of the vectors that are handed over, and the largest of its numbers.
struct Next {
    Parts<OWN> parts;
    float largest[2];
    __device__ __forceinline__ void begin() { largest[0] = largest[1] = 0; }
    // Some numbers of sequence r.
    __device__ __forceinline__ void take(int r, int begin, const float* value) {
        float most[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            most[n] = fmaxf(value[2 * n], value[2 * n + 1]);
            const int tile = (begin + 2 * n) / 4, i = r + 2 * (n % 2);
            split(value[2 * n], value[2 * n + 1], parts.high[tile][i], parts.low[tile][i]);
        }
        largest[r] = fmaxf(largest[r], fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])));
    }
};

// Makes `parts` of what all warps have that share them, and finds the largest exponents.
__device__ __forceinline__ void hand_over(
    Exchange* exchange, const Lane& own, int turn, const Next& next, Parts<TILES>& parts, int* scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float largest = fmaxf(next.largest[r], __shfl_xor_sync(EVERY_LANE, next.largest[r], 1));
        largest = fmaxf(largest, __shfl_xor_sync(EVERY_LANE, largest, 2));
        scale[r] = max(exponent_of(largest), -126);
    }
    if constexpr (SHARE == 1) {
        // Never 1, which the compiler cannot know: were these the same registers it would let every product
        // wait for the one before.
        const unsigned none = GROUP && next.largest[0] < 0 ? 1 : 0;
#pragma unroll
        for (int tile = 0; tile < OWN; ++tile) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                parts.high[tile][i] = next.parts.high[tile][i] ^ none;
                parts.low[tile][i] = next.parts.low[tile][i] ^ none;
            }
        }
    } else {
        uint4(*to)[2][32] = exchange[own.set].parts[turn];
#pragma unroll
        for (int tile = 0; tile < OWN; ++tile) {
            const unsigned *high = next.parts.high[tile], *low = next.parts.low[tile];
            to[own.part * OWN + tile][0][own.lane] = {high[0], high[1], high[2], high[3]};
            to[own.part * OWN + tile][1][own.lane] = {low[0], low[1], low[2], low[3]};
        }
        int(*largest)[ROWS] = exchange[own.set].largest[turn];
        if (own.lane % 4 == 0) {
            for (int r = 0; r < 2; ++r) { largest[own.part][own.lane / 4 + 8 * r] = scale[r]; }
        }
        meet(own);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            for (int w = 0; w < SHARE; ++w) { scale[r] = max(scale[r], largest[w][own.lane / 4 + 8 * r]); }
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const uint4 high = to[tile][0][own.lane], low = to[tile][1][own.lane];
            parts.high[tile][0] = high.x;
            parts.high[tile][1] = high.y;
            parts.high[tile][2] = high.z;
            parts.high[tile][3] = high.w;
            parts.low[tile][0] = low.x;
            parts.low[tile][1] = low.y;
            parts.low[tile][2] = low.z;
            parts.low[tile][3] = low.w;
        }
    }
}

// Products of vectors with the matrix [to][from], in shared memory. `find` makes of `parts` some of the
// warp's nodes, found[r][n], after `begin`; only after all of them `parts` may change.
#if GROUP
// Rows of 64 numbers of 16 bits, those of the smaller parts behind the others.
struct Matrix {
    static constexpr int BYTES = 4 * K * K, HALVES = K / 64;
    address_t tiles;
    float sums[HALVES][32];
    __device__ __forceinline__ Matrix(const float* __restrict__ matrix, char* memory) {
        for (int at = threadIdx.x; at < K * K / 4; at += THREADS) {
            const int n = at / (K / 4), from = 4 * (at % (K / 4));
            float four[4];
            take_four(*reinterpret_cast<const float4*>(matrix + output_of(n) * K + from), four);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int k = from / 16 * 16 + from % 16 / 2 + 8 * i;
                const int part = k % 64 / 8 ^ n % 8;
                unsigned* to = reinterpret_cast<unsigned*>(
                    memory + (k / 64 * K + n) * 128 + 16 * part + 2 * (k % 8));
                split(four[2 * i], four[2 * i + 1], to[0], to[K * K / 2]);
            }
        }
        fence_copies();
        __syncthreads();
        tiles = described(shared_address(memory));
    }
    __device__ __forceinline__ void begin(const Parts<TILES>& parts) {
        begin_products();
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const address_t high = tiles + (tile / 4 * K + half * 64) * 8 + tile % 4 * 2;
                const address_t low = high + K * K / 8;
                multiply(sums[half], parts.high[tile], high, tile);
                multiply(sums[half], parts.high[tile], low, 1);
                multiply(sums[half], parts.low[tile], high, 1);
            }
            end_products();
        }
    }
    __device__ __forceinline__ void find(
        const Parts<TILES>& parts, const Lane& own, int begin, float (*found)[SOME]) {
        if (begin % 16 == 0) {
            if (begin / 16 == HALVES - 1) {
                await_products<0>(sums[HALVES - 1]);
            } else {
                await_products<1>(sums[0]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int n = 0; n < SOME; ++n) {
                const int tile = (begin + n) % 16 / 4 * 2 + n % 4 / 2;
                found[r][n] = sums[begin / 16][4 * tile + 2 * r + n % 2];
            }
        }
    }
};
#else
// For each tile of 8 by 16 what a lane has of both parts.
struct Matrix {
    static constexpr int BYTES = 4 * K * K;
    uint4* weights;
    __device__ __forceinline__ Matrix(const float* __restrict__ matrix, char* memory)
        : weights(reinterpret_cast<uint4*>(memory)) {
        for (int at = threadIdx.x; at < TILES * K / 8 * 32; at += THREADS) {
            const int lane = at % 32, tile = at / 32 % TILES, m = at / 32 / TILES;
            const int to = 16 * (m / 2) + 4 * (lane / 8) + 2 * (m % 2) + lane / 4 % 2;
            const float* from = matrix + to * K + 16 * tile + 4 * (lane % 4);
            split(from[0], from[1], weights[at].x, weights[at].z);
            split(from[2], from[3], weights[at].y, weights[at].w);
        }
        __syncthreads();
    }
    __device__ __forceinline__ void begin(const Parts<TILES>&) {}
    __device__ __forceinline__ void find(
        const Parts<TILES>& parts, const Lane& own, int begin, float (*found)[SOME]) const {
        float sums[4][4], rest[4][4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) { sums[m][i] = rest[m][i] = 0; }
        }
        const uint4* from = weights + (2 * OWN * own.part + begin / 2) * TILES * 32 + own.lane;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            uint4 some[4];
#pragma unroll
            for (int m = 0; m < 4; ++m) { some[m] = from[(m * TILES + tile) * 32]; }
            // What is added to the same numbers does not follow at once.
#pragma unroll
            for (int m = 0; m < 4; ++m) { multiply(rest[m], parts.high[tile], some[m].z, some[m].w); }
#pragma unroll
            for (int m = 0; m < 4; ++m) { multiply(sums[m], parts.high[tile], some[m].x, some[m].y); }
#pragma unroll
            for (int m = 0; m < 4; ++m) { multiply(rest[m], parts.low[tile], some[m].x, some[m].y); }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int n = 0; n < SOME; ++n) {
                found[r][n] = sums[n / 2][2 * r + n % 2] + rest[n / 2][2 * r + n % 2];
            }
        }
    }
};
#endif

// Shared memory where tensor cores may read it.
__device__ __forceinline__ char* aligned(char* memory) {
#if GROUP
    const unsigned address = shared_address(memory);
    return memory + (first_tile(address) - address);
#else
    return memory;
#endif
}

// Slices of the longest sequence of those that are multiplied together; 0 where there is none.
__device__ __forceinline__ int find_longest(const Lane& own, const int* lengths, int count) {
    const int begin = GROUP ? 64 * blockIdx.x : own.begin;
    return begin < count ? lengths[begin] : 0;
}

// As `forward` of scan.cu, with transition[j * K + i] and no tables. Vectors are divided at every slice, by
// the power of two below the largest entry of the slice before. Loads do not depend on what a slice is:
// rows that have ended read their last slice again, and what they make of it is not used.
extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const float* __restrict__ transition, const int* __restrict__, const float* __restrict__ table,
    const float* __restrict__ bottom_table, const float* __restrict__ top,
    const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, float under,
    float* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ results) {
    extern __shared__ uint4 dynamic[];
    char* memory = aligned(reinterpret_cast<char*>(dynamic));
    Matrix matrix(transition, memory);
    Exchange* exchange = reinterpret_cast<Exchange*>(memory + Matrix::BYTES);
    Ahead<1> ahead(memory + Matrix::BYTES);
    const Lane own = find_lane(first, lengths, direction, count);
    const int longest = find_longest(own, lengths, count);
    if (!longest) { return; }
    Parts<TILES> parts;
    Next next;
    float least[2] = {1, 1}, lowest[2];
    long long total[2] = {0, 0};
    int scale[2] = {0, 0}, slots[AHEAD][2];
    auto find = [&](int r, int h) { return slot[own.row(r, min(h, own.slices[r].length - 1))]; };
    const bool keeps = exponents != nullptr;
    auto kept = [&](int r, int h) { return vectors + (keeps ? own.row(r, h) : own.sequence(r)) * K; };
    float* to[2];
    bool stores[2];
    auto begin_slice = [&](int h) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int left = own.slices[r].length - h;
            stores[r] = keeps ? left > 0 : left == 1;
            to[r] = kept(r, h);
        }
        ahead.arrive();
    };
    // What slice h makes of some products; loads the coefficients of the slice that follows in `a`.
    auto use = [&](int a, int h, int begin, const float(*mixed)[SOME]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float unit = power_of_two(-scale[r]);
            float now[SOME], low[SOME];
            ahead.read(a, 0, r, begin, now);
#pragma unroll
            for (int n = 0; n < SOME; ++n) {
                now[n] = now[n] * unit * mixed[r][n] + under;
                low[n] = WHOLE || own.node(begin + n) < k ? now[n] : 1.0f;
            }
#pragma unroll
            for (int step = SOME / 2; step; step /= 2) {
#pragma unroll
                for (int n = 0; n < step; ++n) { low[n] = fminf(low[n], low[n + step]); }
            }
            lowest[r] = begin ? fminf(lowest[r], low[0]) : low[0];
            next.take(r, begin, now);
            if (stores[r]) { store_some(to[r], own, begin, now); }
            ahead.load(a, 0, r, begin, table + (long long)slots[a][r] * K, own);
        }
    };
    auto pass = [&](int a, int h) {
        ahead.end();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            slots[a][r] = find(r, h + 2 * AHEAD);
            if (h >= own.slices[r].length) { continue; }
            least[r] = fminf(least[r], lowest[r]);
            total[r] += scale[r];
            if (keeps && own.lane % 4 == 0 && own.part == 0) {
                exponents[own.row(r, h)] = scale[r];
            }
        }
        hand_over(exchange, own, h & 1, next, parts, scale);
        next.begin();
    };
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float* from = (a ? table : bottom_table) + (long long)find(r, a) * K;
            slots[a][r] = find(r, AHEAD + a);
#pragma unroll
            for (int n = 0; n < EACH; n += SOME) { ahead.load(a, 0, r, n, from, own); }
        }
        ahead.end();
    }
    begin_slice(0);
    next.begin();
#pragma unroll
    for (int begin = 0; begin < EACH; begin += SOME) {
        float ones[2][SOME];
#pragma unroll
        for (int n = 0; n < SOME; ++n) { ones[0][n] = ones[1][n] = 1; }
        use(0, 0, begin, ones);
    }
    pass(0, 0);
    for (int base = 1; base < longest; base += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int h = base + i, a = (1 + i) % AHEAD;
            if (h >= longest) { break; }
            matrix.begin(parts);
            begin_slice(h);
#pragma unroll
            for (int begin = 0; begin < EACH; begin += SOME) {
                float mixed[2][SOME];
                matrix.find(parts, own, begin, mixed);
                use(a, h, begin, mixed);
            }
            pass(a, h);
        }
    }
    // The root is a linear form of the last vector.
    double sums[2] = {0, 0}, lows[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        for (int n = 0; n < EACH && own.slices[r].length; n += 4) {
            const float* from = kept(r, own.slices[r].length - 1) + own.node(n);
            for (int v = 0; v < 4; ++v) { sums[r] += double(from[v]) * double(top[own.node(n) + v]); }
        }
        lows[r] = least[r];
        for (int step = 1; step < 4; step *= 2) {
            sums[r] += __shfl_xor_sync(EVERY_LANE, sums[r], step);
            lows[r] = fmin(lows[r], __shfl_xor_sync(EVERY_LANE, lows[r], step));
        }
    }
    if constexpr (SHARE > 1) {
        auto others = reinterpret_cast<double(*)[4]>(exchange[own.set].parts[longest & 1]);
        if (own.part == 1) {
            for (int r = 0; r < 2; ++r) {
                others[own.lane][r] = sums[r];
                others[own.lane][2 + r] = lows[r];
            }
        }
        meet(own);
        for (int r = 0; r < 2; ++r) {
            sums[r] += others[own.lane][r];
            lows[r] = fmin(lows[r], others[own.lane][2 + r]);
        }
    }
    if (own.lane % 4 || own.part) { return; }
    for (int r = 0; r < 2; ++r) {
        const int sequence = own.sequence(r);
        if (sequence >= count) { continue; }
        results[sequence] = sums[r];
        results[(long long)count + sequence] = double(total[r]);
        results[2LL * count + sequence] = lows[r];
    }
}

// As `backward` of scan.cu, with transposed[i * K + j] and no tables.
extern "C" __global__ void __launch_bounds__(THREADS) backward(
    const float* __restrict__ transposed, const int* __restrict__, const float* __restrict__ table,
    const float* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const float* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const float* __restrict__ share,
    float* __restrict__ posteriors, float* __restrict__ uses, int* __restrict__ highest) {
    extern __shared__ uint4 dynamic[];
    char* memory = aligned(reinterpret_cast<char*>(dynamic));
    Matrix matrix(transposed, memory);
    Exchange* exchange = reinterpret_cast<Exchange*>(memory + Matrix::BYTES);
    Ahead<2> ahead(memory + Matrix::BYTES);
    const Lane own = find_lane(first, lengths, direction, count);
    const int longest = find_longest(own, lengths, count);
    if (!longest) { return; }
    Parts<TILES> parts;
    Next next;
    float factor[2];
    unsigned most[2] = {0, 0};
    int slots[AHEAD][2], powers[AHEAD][2], coming[AHEAD][2];
    // The row s slices below the top, and what it needs.
    auto row = [&](int r, int s) { return own.row(r, own.slices[r].length - 1 - s); };
    auto find = [&](int a, int r, int s) {
        slots[a][r] = slot[row(r, s)];
        coming[a][r] = exponents[row(r, s)];
    };
    auto load = [&](int a, int r, int s, int begin) {
        ahead.load(a, 0, r, begin, table + (long long)slots[a][r] * K, own);
        ahead.load(a, 1, r, begin, vectors + row(r, s) * K, own);
    };
    // What slice s does with some of its derivatives; loads those of the slice that follows in `a`.
    auto use = [&](int a, int s, int begin, const float(*derivative)[SOME]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const bool counts = factor[r] > 0;
            const float unit = counts && s < own.slices[r].length - 1 ? power_of_two(-powers[a][r]) : 0.0f;
            float coefficients[SOME], vector[SOME], posterior[SOME], used[SOME];
            unsigned high[SOME];
            ahead.read(a, 0, r, begin, coefficients);
            ahead.read(a, 1, r, begin, vector);
#pragma unroll
            for (int n = 0; n < SOME; ++n) {
                high[n] = bits_of(derivative[r][n]);
                posterior[n] = counts ? vector[n] * derivative[r][n] : 0.0f;
                used[n] = unit > 0 ? coefficients[n] * unit * derivative[r][n] : 0.0f;
            }
#pragma unroll
            for (int step = SOME / 2; step; step /= 2) {
#pragma unroll
                for (int n = 0; n < step; ++n) { high[n] = max(high[n], high[n + step]); }
            }
            if (s < own.slices[r].length) {
                most[r] = max(most[r], high[0]);
                store_some(posteriors + row(r, s) * K, own, begin, posterior);
                store_some(uses + row(r, s) * K, own, begin, used);
            }
            next.take(r, begin, used);
            load(a, r, s + AHEAD, begin);
        }
    };
    auto pass = [&](int a, int s) {
        ahead.end();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            powers[a][r] = coming[a][r];
            find(a, r, s + 2 * AHEAD);
        }
        int unused[2];
        hand_over(exchange, own, s & 1, next, parts, unused);
        next.begin();
    };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float weight = own.slices[r].length ? share[own.sequence(r)] : 0.0f;
        factor[r] = weight > 0 ? float(double(weight) / root[own.sequence(r)]) : 0.0f;
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            find(a, r, a);
            powers[a][r] = coming[a][r];
#pragma unroll
            for (int n = 0; n < EACH; n += SOME) { load(a, r, a, n); }
            find(a, r, AHEAD + a);
        }
        ahead.end();
    }
    ahead.arrive();
    next.begin();
#pragma unroll
    for (int begin = 0; begin < EACH; begin += SOME) {
        float derivative[2][SOME];
#pragma unroll
        for (int n = 0; n < SOME; ++n) {
            derivative[0][n] = factor[0] * top[own.node(begin + n)];
            derivative[1][n] = factor[1] * top[own.node(begin + n)];
        }
        use(0, 0, begin, derivative);
    }
    pass(0, 0);
    for (int base = 1; base < longest; base += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int s = base + i, a = (1 + i) % AHEAD;
            if (s >= longest) { break; }
            matrix.begin(parts);
            ahead.arrive();
#pragma unroll
            for (int begin = 0; begin < EACH; begin += SOME) {
                float derivative[2][SOME];
                matrix.find(parts, own, begin, derivative);
                use(a, s, begin, derivative);
            }
            pass(a, s);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        unsigned found = most[r];
        for (int step = 1; step < 4; step *= 2) {
            found = max(found, __shfl_xor_sync(EVERY_LANE, found, step));
        }
        // NaN is the largest, whichever warp has met it.
        if (own.sequence(r) < count && own.lane % 4 == 0) {
            atomicMax(highest + own.sequence(r), exponent_in(found));
        }
    }
}

// parts[blockIdx.x, j, i] = sum over some rows of left[row, j] * right[row, i]. A block takes rows
// blockIdx.x * 16 G, and on by gridDim.x * 16 G, where G = 8 / (K / 16) groups of warps take 16 rows
// each. Launched with 256 threads.
extern "C" __global__ void __launch_bounds__(256) outer(
    const float* __restrict__ left, const float* __restrict__ right, long long rows,
    float* __restrict__ parts) {
    constexpr int G = 8 / TILES, BOTH = ROWS * G, PAIRS = BOTH * K / 2 / 256;
    __shared__ __align__(16) half_t tile[2][2][BOTH][K + 8];
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
    // Groups add theirs in turn.
    float* out = parts + (long long)blockIdx.x * K * K;
    float* total = G == 1 ? out : reinterpret_cast<float*>(tile);
    for (int g = 0; g < G; ++g) {
#pragma unroll
        for (int n = 0; n < K / 8; ++n) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int row = 16 * j + lane / 4 + 8 * r, column = 8 * n + 2 * (lane % 4);
                float2* to = reinterpret_cast<float2*>(total + row * K + column);
                if (g != group) { continue; }
                const float2 before = g ? *to : make_float2(0, 0);
                *to = make_float2(before.x + sums[n][2 * r], before.y + sums[n][2 * r + 1]);
            }
        }
        __syncthreads();
    }
    for (int at = threadIdx.x; G > 1 && at < K * K; at += 256) { out[at] = total[at]; }
}
