// Both passes over the sequences of a chain of at most K nodes, one thread for each node.
//
// Compiled with -DK=8, 16, 32, 64 or 128 and -DREAL=float or double. A group of K threads takes a
// sequence; thread j keeps row j of the transition (on the way down column j) in registers. Vectors
// are divided by the power of two below the largest entry of the slice before, which is exact.

typedef REAL real;
constexpr bool IS_FLOAT = sizeof(real) == 4;
constexpr int THREADS = K < 128 ? (K < 64 ? 128 : 64) : 128;
constexpr int PER = THREADS / K;
constexpr int WARPS = K < 32 ? 1 : K / 32;
constexpr int AHEAD = 4;

__device__ __forceinline__ int exponent_of(real x) {
    if constexpr (IS_FLOAT) {
        return int((__float_as_uint(float(x)) >> 23) & 255) - 127;
    } else {
        return int((__double_as_longlong(double(x)) >> 52) & 2047) - 1023;
    }
}

__device__ __forceinline__ real power_of_two(int e) {
    constexpr int LIMIT = IS_FLOAT ? 126 : 1022;
    e = e > LIMIT ? LIMIT : (e < -LIMIT ? -LIMIT : e);
    if constexpr (IS_FLOAT) {
        return real(__uint_as_float((unsigned)(e + 127) << 23));
    } else {
        return real(__longlong_as_double((long long)(e + 1023) << 52));
    }
}

__device__ __forceinline__ void together() {
    if constexpr (K <= 32) { __syncwarp(); } else { __syncthreads(); }
}

// The largest exponent among the threads of a sequence that share a warp.
__device__ __forceinline__ int largest_in_warp(int e) {
    constexpr int WIDTH = K < 32 ? K : 32;
#pragma unroll
    for (int step = WIDTH / 2; step; step /= 2) {
        e = max(e, __shfl_xor_sync(0xffffffffu, e, step));
    }
    return e;
}

struct Vectors {
    alignas(16) real v[PER][2][K];
    int largest[PER][2][WARPS];
};

__device__ __forceinline__ int hand_over(Vectors& shared, int own, int turn, int j, real value) {
    shared.v[own][turn][j] = value;
    int e = largest_in_warp(exponent_of(value));
    if constexpr (K > 32) {
        if ((j & 31) == 0) { shared.largest[own][turn][j >> 5] = e; }
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; ++w) { e = max(e, shared.largest[own][turn][w]); }
    } else {
        __syncwarp();
    }
    return e;
}

__device__ __forceinline__ real dot(const real* weights, const real* v) {
    real sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < K; i += 4) {
        if constexpr (IS_FLOAT) {
            const float4 four = *reinterpret_cast<const float4*>(v + i);
            sums[0] += weights[i] * four.x;
            sums[1] += weights[i + 1] * four.y;
            sums[2] += weights[i + 2] * four.z;
            sums[3] += weights[i + 3] * four.w;
        } else {
            sums[0] += weights[i] * v[i];
            sums[1] += weights[i + 1] * v[i + 1];
            sums[2] += weights[i + 2] * v[i + 2];
            sums[3] += weights[i + 3] * v[i + 3];
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// transition[i * K + j]: weight of input i in the sum of output j. Slice h of a sequence is row
// first + h * direction; its coefficients are table[slot[row] * K + j], at height 0 those of
// bottom_table. Writes the value of the root, the exponent that it lacks, and the least value met.
extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const real* __restrict__ transition, const real* __restrict__ table,
    const real* __restrict__ bottom_table, const real* __restrict__ top,
    const int* __restrict__ slot, const long long* __restrict__ first,
    const int* __restrict__ lengths, int direction, int count, int k, real under,
    real* __restrict__ vectors, int* __restrict__ exponents, double* __restrict__ root,
    long long* __restrict__ powers, real* __restrict__ least) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / K, j = threadIdx.x % K;
    const int sequence = blockIdx.x * PER + own;
    const bool there = sequence < count;
    const int length = there ? lengths[sequence] : 0;
    const int longest = lengths[blockIdx.x * PER];
    const long long start = there ? first[sequence] : 0;
    real weights[K];
#pragma unroll
    for (int i = 0; i < K; ++i) { weights[i] = transition[i * K + j]; }
    real value = 0, low = 1;
    int scale = 0;
    long long total = 0;
    real ahead[AHEAD];
    int slots[AHEAD];
    auto row_at = [&](int h) { return start + (long long)direction * h; };
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        ahead[a] = 0;
        if (a < length) {
            ahead[a] = (a ? table : bottom_table)[(long long)slot[row_at(a)] * K + j];
        }
        slots[a] = AHEAD + a < length ? slot[row_at(AHEAD + a)] : 0;
    }
    for (int base = 0; base < longest; base += AHEAD) {
        real now[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now[a] = ahead[a];
            const int h = base + AHEAD + a;
            ahead[a] = h < length ? table[(long long)slots[a] * K + j] : real(0);
            slots[a] = h + AHEAD < length ? slot[row_at(h + AHEAD)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const int h = base + a;
            if (h >= longest) { break; }
            const bool active = h < length;
            if (h == 0) {
                value = now[a] + under;
            } else {
                const real y = dot(weights, shared.v[own][(h - 1) & 1]);
                if (active) {
                    value = now[a] * power_of_two(-scale) * y + under;
                    total += scale;
                }
            }
            if (active) {
                if (j < k) { low = value < low ? value : low; }
                if (vectors != nullptr) {
                    vectors[row_at(h) * K + j] = value;
                    if (j == 0) { exponents[row_at(h)] = h ? scale : 0; }
                }
            }
            const int e = hand_over(shared, own, h & 1, j, value);
            if (active) { scale = e; }
        }
    }
    // The root is a linear form of the last vector.
    together();
    double part = there ? double(value) * double(top[j]) : 0.0;
    double* sums = reinterpret_cast<double*>(&shared);
    constexpr int WIDTH = K < 32 ? K : 32;
#pragma unroll
    for (int step = WIDTH / 2; step; step /= 2) {
        part += __shfl_xor_sync(0xffffffffu, part, step);
        low = min(low, __shfl_xor_sync(0xffffffffu, low, step));
    }
    if constexpr (K > 32) {
        __syncthreads();
        if ((j & 31) == 0) {
            sums[2 * (j >> 5)] = part;
            sums[2 * (j >> 5) + 1] = double(low);
        }
        __syncthreads();
        part = 0;
        for (int w = 0; w < WARPS; ++w) {
            part += sums[2 * w];
            low = min(low, real(sums[2 * w + 1]));
        }
    }
    if (there && j == 0) {
        root[sequence] = part;
        powers[sequence] = total;
        least[sequence] = low;
    }
}

// Posteriors of the outputs of every slice, times the weight of the sequence, and `uses`: what the
// sum of each output hands to its inputs, so that input i of output j is used
// transition[i * K + j] * uses[row, j] * vectors[row below, i] times. `highest` is the largest
// exponent by which values times derivatives fell short of the root.
extern "C" __global__ void __launch_bounds__(THREADS) backward(
    const real* __restrict__ transposed, const real* __restrict__ table,
    const real* __restrict__ top, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, int direction,
    int count, const real* __restrict__ vectors, const int* __restrict__ exponents,
    const double* __restrict__ root, const real* __restrict__ share,
    real* __restrict__ posteriors, real* __restrict__ uses, int* __restrict__ highest) {
    __shared__ Vectors shared;
    const int own = threadIdx.x / K, j = threadIdx.x % K;
    const int sequence = blockIdx.x * PER + own;
    const bool there = sequence < count;
    const int length = there ? lengths[sequence] : 0;
    const int longest = lengths[blockIdx.x * PER];
    const long long start = there ? first[sequence] : 0;
    real weights[K];
#pragma unroll
    for (int i = 0; i < K; ++i) { weights[i] = transposed[i * K + j]; }
    const real weight = there ? share[sequence] : real(0);
    const bool counts = weight > 0;
    const real factor = there ? real(double(weight) / root[sequence]) : real(0);
    real derivative = there ? top[j] : real(0);
    int lack = 0, most = 0;
    auto row_at = [&](int h) { return start + (long long)direction * h; };
    real ahead_table[AHEAD], ahead_vector[AHEAD];
    int ahead_exponent[AHEAD], slots[AHEAD];
    // Step s is height length - 1 - s.
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        const int h = length - 1 - a;
        ahead_table[a] = h > 0 ? table[(long long)slot[row_at(h)] * K + j] : real(0);
        ahead_vector[a] = h >= 0 ? vectors[row_at(h) * K + j] : real(0);
        ahead_exponent[a] = h >= 0 ? exponents[row_at(h)] : 0;
        slots[a] = h - AHEAD > 0 ? slot[row_at(h - AHEAD)] : 0;
    }
    for (int base = 0; base < longest; base += AHEAD) {
        real now_table[AHEAD], now_vector[AHEAD];
        int now_exponent[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            now_table[a] = ahead_table[a];
            now_vector[a] = ahead_vector[a];
            now_exponent[a] = ahead_exponent[a];
            const int h = length - 1 - (base + AHEAD + a);
            ahead_table[a] = h > 0 ? table[(long long)slots[a] * K + j] : real(0);
            ahead_vector[a] = h >= 0 ? vectors[row_at(h) * K + j] : real(0);
            ahead_exponent[a] = h >= 0 ? exponents[row_at(h)] : 0;
            slots[a] = h - AHEAD > 0 ? slot[row_at(h - AHEAD)] : 0;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            if (base + a >= longest) { break; }
            const int h = length - 1 - (base + a);
            const bool active = h >= 0;
            const real handed = now_table[a] * derivative;
            if (active) {
                const real unit = power_of_two(lack) * factor;
                const long long place = row_at(h) * K + j;
                posteriors[place] = counts ? now_vector[a] * derivative * unit : real(0);
                uses[place] =
                    counts && h ? handed * power_of_two(-now_exponent[a]) * unit : real(0);
                most = max(most, lack);
            }
            const int e = hand_over(shared, own, a & 1, j, active ? handed : real(1));
            const real y = dot(weights, shared.v[own][a & 1]);
            if (active && h) {
                derivative = y * power_of_two(-e);
                lack += e - now_exponent[a];
            }
        }
    }
    if (there && j == 0) { highest[sequence] = most; }
}
