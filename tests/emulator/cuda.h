// What the kernels of the library use of CUDA, for g++: a block runs on one core, a thread is a fiber.
//
// A fiber runs until it waits for its warp or its block. In which order those that can go on do so is
// a number of the launch: a kernel without races gives the same bits in every order. Shared memory
// begins as NaN in every block. Lanes of a warp that meet at different operations, or wait for a
// thread that has ended, are errors.
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emulated_shared")))

struct uint3 { unsigned x, y, z; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

extern char __start_emulated_shared[], __stop_emulated_shared[];
static char first_of_shared __attribute__((section("emulated_shared"), used, aligned(16)));

namespace emulator {

enum State { READY, AT_WARP, AT_BLOCK, AT_BARRIER, AT_EVENT, ENDED };
constexpr int STACK = 128 << 10, MOST_THREADS = 2304, DYNAMIC = 227 << 10, BEHIND = 256;
constexpr int MOST_BLOCKS = 6;  // that run side by side
struct Thread {
    jmp_buf at;
    ucontext_t start;
    State state;
    bool begun;
    int turn, barrier;
    const char* operation;
};
struct Warp { alignas(16) char slot[2][32][32]; int waiting; };
static Thread thread[MOST_THREADS];
static Warp warp[MOST_THREADS / 32];
static char* stacks;
static jmp_buf scheduler;
static int self, threads, shared_size, at_block[MOST_BLOCKS], at_barrier[MOST_BLOCKS][16];
static char message[200];
static void (*body)(void**);
static void** arguments;
static long long runs;  // of blocks side by side
alignas(16) static char dynamic[MOST_BLOCKS][DYNAMIC + BEHIND];
static char* dynamic_memory() { return dynamic[self / threads]; }

[[noreturn]] static void fail(const char* what, const char* more = "") {
    snprintf(message, sizeof message, "block (%u, %u), thread %d: %s%s", blockIdx.x, blockIdx.y, self,
             what, more);
    _longjmp(scheduler, 1);
}

__attribute__((noinline)) static void leave(State state) {
    thread[self].state = state;
    if (!_setjmp(thread[self].at)) { _longjmp(scheduler, 1); }
}

static void wait_for_block() {
    const int block = self / threads;
    if (++at_block[block] < threads) { return leave(AT_BLOCK); }
    at_block[block] = 0;
    for (int t = block * threads; t < (block + 1) * threads; ++t) {
        if (t != self && thread[t].state != AT_BLOCK) { fail("__syncthreads without all threads"); }
        thread[t].state = READY;
    }
}

static void wait_for_some(int barrier, int count) {
    const int block = self / threads;
    thread[self].barrier = barrier;
    if (++at_barrier[block][barrier] < count) { return leave(AT_BARRIER); }
    at_barrier[block][barrier] = 0;
    for (int t = block * threads; t < (block + 1) * threads; ++t) {
        if (thread[t].state == AT_BARRIER && thread[t].barrier == barrier) { thread[t].state = READY; }
    }
}

// Lets all look again at what they wait for.
[[maybe_unused]] static void wake() {
    for (Thread& own : thread) {
        if (own.state == AT_EVENT) { own.state = READY; }
    }
}

// Hands over `own` and waits for the warp; returns what its lanes have handed over.
template <typename T> const char (*meet(const char* operation, const T& own))[32] {
    static_assert(sizeof(T) <= 32);
    Thread& me = thread[self];
    Warp& mine = warp[self / 32];
    me.turn ^= 1;
    me.operation = operation;
    const int turn = me.turn;
    memcpy(mine.slot[turn][self % 32], &own, sizeof own);
    if (++mine.waiting < 32) {
        leave(AT_WARP);
    } else {
        mine.waiting = 0;
        for (int t = self & ~31; t < (self | 31) + 1; ++t) {
            if (t != self && thread[t].state != AT_WARP) { fail("a lane is elsewhere at ", operation); }
            if (strcmp(thread[t].operation, operation)) { fail("lanes meet at two operations: ", operation); }
            thread[t].state = READY;
        }
    }
    return mine.slot[turn];
}

template <typename T> T handed(const char (*slots)[32], int lane) {
    T found;
    memcpy(&found, slots[lane], sizeof found);
    return found;
}

static void check_mask(unsigned mask) {
    if (mask != 0xffffffffu) { fail("only whole warps are emulated"); }
}

static void begin() {
    for (;;) {
        body(arguments);
        leave(ENDED);
    }
}

static long long first_block;
__attribute__((noinline)) static void resume(int t) {
    self = t;
    const long long block = first_block + t / threads;
    blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x), 0};
    threadIdx = {unsigned(t % threads), 0, 0};
    if (_setjmp(scheduler)) { return; }
    if (thread[t].begun) { _longjmp(thread[t].at, 1); }
    thread[t].begun = true;
    setcontext(&thread[t].start);
}

static unsigned random_state;
static unsigned random_below(unsigned n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

// Some blocks side by side; `__shared__` variables are those of a single one. Order 0 takes warps in turn,
// 1 the last one first and as far as it goes, 2 any.
static void run_blocks(int count, int order, int shared_bytes) {
    ++runs;
    memset(__start_emulated_shared, 0xff, __stop_emulated_shared - __start_emulated_shared);
    for (int b = 0; b < count; ++b) { memset(dynamic[b], 0xff, shared_bytes + BEHIND); }
    memset(at_block, 0, sizeof at_block);
    memset(at_barrier, 0, sizeof at_barrier);
    const int all = count * threads, warps = all / 32;
    for (int t = 0; t < all; ++t) { thread[t].state = READY; }
    for (int w = 0; w < warps; ++w) { warp[w].waiting = 0; }
    for (bool left = true; left;) {
        for (int w = 0; w < warps; ++w) {
            const int own = order == 1 ? warps - 1 - w : (order == 2 ? int(random_below(warps)) : w);
            const int from = order == 2 ? int(random_below(32)) : 0;
            for (bool moved = true; moved;) {
                moved = false;
                for (int i = 0; i < 32; ++i) {
                    const int t = 32 * own + (order == 1 ? 31 - i : (from + i) % 32);
                    if (thread[t].state != READY) { continue; }
                    resume(t);
                    if (message[0]) { return; }
                    moved = order == 1;
                }
            }
        }
        left = false;
        for (int t = 0; t < all && !left; ++t) { left = thread[t].state == READY; }
    }
    for (int t = 0; t < all; ++t) {
        if (thread[t].state == ENDED) { continue; }
        snprintf(message, sizeof message, "block (%u, %u): thread %d waits for threads that have ended",
                 blockIdx.x, blockIdx.y, t);
        return;
    }
    for (int i = 0; i < count * BEHIND; ++i) {
        if (dynamic[i / BEHIND][shared_bytes + i % BEHIND] != char(0xff)) {
            snprintf(message, sizeof message, "wrote behind its %d bytes of shared memory", shared_bytes);
            return;
        }
    }
}

// The types of arguments as the host names them: a character of NumPy, for pointers behind a *.
template <typename T> constexpr char letter() {
    if (std::is_same_v<T, float>) { return 'f'; }
    if (std::is_same_v<T, double>) { return 'd'; }
    if (std::is_integral_v<T>) { return sizeof(T) == 8 ? 'q' : (sizeof(T) == 4 ? 'i' : 'b'); }
    return '?';
}
template <typename T> void name_type(char*& to) {
    if (std::is_pointer_v<T>) { *to++ = '*'; }
    *to++ = letter<std::remove_cv_t<std::remove_pointer_t<T>>>();
    *to = 0;
}
template <typename... A> const char* signature(void (*)(A...)) {
    static char found[200];
    char* to = found;
    (name_type<A>(to), ...);
    return found;
}
template <auto kernel, typename... A, std::size_t... I>
void call(void (*)(A...), void** from, std::index_sequence<I...>) {
    kernel(*reinterpret_cast<A*>(from[I])...);
}
template <auto kernel, typename... A> void call_all(void (*own)(A...), void** from) {
    call<kernel>(own, from, std::index_sequence_for<A...>());
}

static const char* launch(void (*kernel)(void**), void** from, const unsigned* size, int shared_bytes,
                          int order, bool together) {
    body = kernel;
    arguments = from;
    message[0] = 0;
    gridDim = {size[0], size[1], 1};
    blockDim = {size[2], 1, 1};
    threads = int(size[2]);
    random_state = 1;
    shared_size = shared_bytes;
    const long long blocks = (long long)size[0] * size[1], side = together ? blocks : 1;
    if (threads % 32 || threads > 1024 || threads == 0 || shared_bytes > DYNAMIC) {
        return "a block has a multiple of 32 threads, 1024 at most";
    }
    if (side > MOST_BLOCKS || side * threads > MOST_THREADS) { return "too many blocks side by side"; }
    if (!stacks) { stacks = static_cast<char*>(malloc(std::size_t(STACK) * MOST_THREADS)); }
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    // CuPy compiles for a card that takes float32 numbers below 2^-126 for 0.
    _mm_setcsr(sizeof(REAL) == 4 ? before | 0x8040 : before);
#endif
    for (int t = 0; t < side * threads; ++t) {
        getcontext(&thread[t].start);
        thread[t].start.uc_stack.ss_sp = stacks + std::size_t(STACK) * t;
        thread[t].start.uc_stack.ss_size = STACK;
        makecontext(&thread[t].start, begin, 0);
        thread[t].begun = false;
        thread[t].turn = 0;
    }
    for (long long b = 0; b < blocks && !message[0]; b += side) {
        first_block = order == 1 ? blocks - side - b : b;
        run_blocks(int(side), order, shared_bytes);
    }
#if defined(__x86_64__)
    _mm_setcsr(before);
#endif
    return message[0] ? message : nullptr;
}

}  // namespace emulator

// Put behind the text of a kernel file for each of its kernels.
#define EMULATE(name, together)                                                                      \
    extern "C" const char* signature_##name() { return emulator::signature(&name); }                 \
    extern "C" const char* launch_##name(void** from, const unsigned* size, int shared, int order) { \
        return emulator::launch([](void** own) { emulator::call_all<&name>(&name, own); }, from,     \
                                size, shared, order, together);                                      \
    }

template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }
template <typename To, typename From> To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To found;
    memcpy(&found, &from, sizeof found);
    return found;
}
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline float2 make_float2(float x, float y) { return {x, y}; }

static inline void __syncthreads() { emulator::wait_for_block(); }
static inline void __syncwarp() { emulator::meet("__syncwarp", 0); }
template <typename T> T __shfl_xor_sync(unsigned mask, T own, int step) {
    emulator::check_mask(mask);
    return emulator::handed<T>(emulator::meet("__shfl_xor_sync", own), (threadIdx.x % 32) ^ step);
}
template <typename T> T __shfl_sync(unsigned mask, T own, int lane) {
    emulator::check_mask(mask);
    return emulator::handed<T>(emulator::meet("__shfl_sync", own), lane % 32);
}
static inline unsigned __ballot_sync(unsigned mask, int own) {
    emulator::check_mask(mask);
    const char(*slots)[32] = emulator::meet("__ballot_sync", own);
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) { found |= unsigned(emulator::handed<int>(slots, lane) != 0) << lane; }
    return found;
}
static inline int atomicMax(int* to, int own) {
    const int before = *to;
    *to = max(before, own);
    return before;
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __reduce_max_sync(unsigned mask, int own) {
    emulator::check_mask(mask);
    const char(*slots)[32] = emulator::meet("__reduce_max_sync", own);
    for (int lane = 0; lane < 32; ++lane) { own = max(own, emulator::handed<int>(slots, lane)); }
    return own;
}

// Instructions of PTX, called by their names with the operands in order.
static inline void bar_sync(int barrier, int count) { emulator::wait_for_some(barrier, count); }
static inline unsigned __cvta_generic_to_shared(const void* from) {
    return unsigned(static_cast<const char*>(from) - __start_emulated_shared);
}
static inline unsigned nearest_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
}
static inline void cvt_rn_bf16x2_f32(unsigned& to, float upper, float lower) {
    to = nearest_bf16(upper) << 16 | nearest_bf16(lower);
}
struct Fragments { unsigned a[4], b[2]; };
// Products are exact and their sum is cut off, not rounded, at 24 bits.
static inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(
    float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1) {
    const char(*slots)[32] = emulator::meet("mma", Fragments{{a0, a1, a2, a3}, {b0, b1}});
    const int lane = threadIdx.x % 32;
    Fragments left[4], right[2][4];
    for (int i = 0; i < 4; ++i) {
        left[i] = emulator::handed<Fragments>(slots, (lane & ~3) + i);
        for (int c = 0; c < 2; ++c) {
            right[c][i] = emulator::handed<Fragments>(slots, 4 * (2 * (lane % 4) + c) + i);
        }
    }
    auto upper = [](unsigned x) { return double(__uint_as_float(x & 0xffff0000u)); };
    auto lower = [](unsigned x) { return double(__uint_as_float(x << 16)); };
    float* const sums[2][2] = {{&c0, &c1}, {&c2, &c3}};
    for (int r = 0; r < 2; ++r) {
        for (int c = 0; c < 2; ++c) {
            double sum = *sums[r][c];
            for (int half = 0; half < 2; ++half) {
                for (int i = 0; i < 4; ++i) {
                    const unsigned x = left[i].a[2 * half + r], y = right[c][i].b[half];
                    sum += lower(x) * lower(y) + upper(x) * upper(y);
                }
            }
            float found = float(sum);
            if (std::fabs(double(found)) > std::fabs(sum)) { found = std::nextafter(found, 0.0f); }
            *sums[r][c] = found;
        }
    }
}
static inline const unsigned short* matrix_row(const char (*slots)[32], int matrix, int row) {
    const unsigned at = emulator::handed<unsigned>(slots, 8 * matrix + row);
    if (at % 16) { emulator::fail("ldmatrix: a row does not begin at a multiple of 16 bytes"); }
    return reinterpret_cast<const unsigned short*>(__start_emulated_shared + at);
}
static inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(
    unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned address) {
    const char(*slots)[32] = emulator::meet("ldmatrix.trans", address);
    const int lane = threadIdx.x % 32;
    unsigned* const to[4] = {&r0, &r1, &r2, &r3};
    for (int m = 0; m < 4; ++m) {
        const unsigned low = matrix_row(slots, m, 2 * (lane % 4))[lane / 4];
        const unsigned high = matrix_row(slots, m, 2 * (lane % 4) + 1)[lane / 4];
        *to[m] = high << 16 | low;
    }
}
