// The instructions of Hopper that kernels use. Blocks of a launch that are neighbours run side by side
// here, and wait for each other.
//
// Copies are done as soon as they are ordered, products as late as they may be: what is overwritten too
// early, or read before it is there, gives other numbers.
#include <functional>
#include <map>
#include <vector>

#define EMULATED
#define __cluster_dims__(...)

static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline int __ldcg(const int* from) { return *from; }
static inline void atomicAdd(unsigned long long* to, unsigned long long own) { *to += own; }
static inline int atomicMin(int* to, int own) {
    const int before = *to;
    *to = min(before, own);
    return before;
}

namespace emulator {

constexpr unsigned BEGIN_OF_DYNAMIC = 4096 + 16;  // no multiple of what tiles begin at
struct Barrier { int count, pending; long long bytes; unsigned turn; };
static std::map<unsigned, Barrier> barriers[MOST_BLOCKS];
// What a thread has ordered, and is done when it waits for it: the last set has not ended.
typedef std::vector<std::vector<std::function<void()>>> Sets;
struct Ordered { Sets sets; long long run; };
static Ordered products[MOST_THREADS], parts[MOST_THREADS];
static Sets& sets_of(Ordered* all) {
    Ordered& own = all[self];
    if (own.run != runs) { own = {Sets(1), runs}; }
    return own.sets;
}
static int at_pair[MOST_BLOCKS / 2], met[MOST_BLOCKS / 2];

// Shared memory of a block at an address.
static char* shared_at(int block, unsigned address, unsigned bytes) {
    const unsigned begin = address - BEGIN_OF_DYNAMIC;
    if (address < BEGIN_OF_DYNAMIC || begin + bytes > unsigned(shared_size)) { fail("outside of shared memory"); }
    if (address % 16) { fail("no multiple of 16 bytes"); }
    return dynamic[block] + begin;
}

static Barrier& barrier_at(int block, unsigned address) {
    const auto found = barriers[block].find(address);
    if (found == barriers[block].end()) { fail("a barrier has not begun"); }
    return found->second;
}

// After an arrival or a copy: whether all is there that a barrier waits for.
static void look_at(Barrier& barrier) {
    if (barrier.pending < 0) { fail("too many arrive at a barrier"); }
    if (barrier.pending || barrier.bytes) { return; }
    barrier.pending = barrier.count;
    barrier.turn ^= 1;
    wake();
}

static void copy(int block, unsigned to, const float* from, unsigned bytes, unsigned barrier) {
    memcpy(shared_at(block, to, bytes), from, bytes);
    Barrier& own = barrier_at(block, barrier);
    own.bytes -= bytes;
    look_at(own);
}

// Where number `k` of a row of a tile is, of so many bytes.
static const char* number_at(unsigned long long described, int row, int k, int bytes) {
    if (described >> 62 != 1) { fail("only parts in the order of 128 bytes are emulated"); }
    const unsigned begin = unsigned(described & 0x3fff) << 4, step = unsigned(described >> 32 & 0x3fff) << 4;
    const unsigned address = begin + row / 8 * step + row % 8 * 128 + bytes * k;
    const unsigned place = address ^ (address >> 7 & 7) << 4;
    return shared_at(self / threads, place & ~15u, 16) + place % 16;
}

// The same without the bits that tensor cores do not read.
static float number(unsigned long long described, int row, int k) {
    return __uint_as_float(*reinterpret_cast<const unsigned*>(number_at(described, row, k, 4)) & 0xffffe000u);
}
static float number_of_half(unsigned long long described, int row, int k) {
    return __uint_as_float(unsigned(*reinterpret_cast<const unsigned short*>(number_at(described, row, k, 2))) << 16);
}

// What a thread has of a product of 64 rows, of which it knows two.
template <int COLUMNS, int DEPTH, typename Right>
static void multiply(float* sums, const float (*left)[DEPTH], Right right, int adds) {
    for (int column = 0; column < COLUMNS / 4; ++column) {
        const int n = column / 2 * 8 + threadIdx.x % 4 * 2 + column % 2;
        for (int r = 0; r < 2; ++r) {
            float& sum = sums[column / 2 * 4 + r * 2 + column % 2];
            double found = adds ? sum : 0.0;
            for (int k = 0; k < DEPTH; ++k) { found += double(left[r][k]) * double(right(n, k)); }
            sum = float(found);
        }
    }
}

// Does all that was ordered but the sets that ended last.
static void await_sets(Sets& own, unsigned last) {
    if (!own.back().empty()) { fail("what was ordered has not ended"); }
    while (own.size() > last + 1) {
        for (const auto& once : own.front()) { once(); }
        own.erase(own.begin());
    }
}

// No lane goes on before its warp has its products.
static void await_products(unsigned last) {
    await_sets(sets_of(products), last);
    meet("wgmma.wait_group", 0);
}

}  // namespace emulator

static inline unsigned shared_address(const void* from) {
    using namespace emulator;
    return unsigned(static_cast<const char*>(from) - dynamic[self / threads]) + BEGIN_OF_DYNAMIC;
}
static inline void begin_barrier(unsigned barrier, int count) {
    emulator::shared_at(emulator::self / emulator::threads, barrier & ~15u, 16);
    emulator::barriers[emulator::self / emulator::threads][barrier] = {count, count, 0, 0};
}
static inline void await(unsigned barrier, unsigned turn) {
    auto& own = emulator::barrier_at(emulator::self / emulator::threads, barrier);
    while (own.turn == turn) { emulator::leave(emulator::AT_EVENT); }
}
static inline void expect(unsigned barrier, unsigned bytes) {
    auto& own = emulator::barrier_at(emulator::self / emulator::threads, barrier);
    own.bytes += bytes;
    --own.pending;
    emulator::look_at(own);
}
static inline void arrive_at(unsigned barrier, int block) {
    auto& own = emulator::barrier_at(emulator::self / emulator::threads / 2 * 2 + block, barrier);
    --own.pending;
    emulator::look_at(own);
}
static inline void copy(unsigned to, const float* from, unsigned bytes, unsigned barrier) {
    emulator::copy(emulator::self / emulator::threads, to, from, bytes, barrier);
}
static inline void copy_to_both(unsigned to, const float* from, unsigned bytes, unsigned barrier) {
    const int first = emulator::self / emulator::threads / 2 * 2;
    for (int block = first; block < first + 2; ++block) { emulator::copy(block, to, from, bytes, barrier); }
}
static inline void await_pieces(const int* done, int wanted) {
    while (*done < wanted) { emulator::leave(emulator::AT_EVENT); }
}
static inline void count_piece(int* done) {
    ++*done;
    emulator::wake();
}
static inline void fence_copies() {}
static inline void fence_barriers() {}
static inline void give_registers() {}
static inline void take_registers() {}
static inline void meet_pair() {
    const int pair = emulator::self / emulator::threads / 2, turn = emulator::met[pair];
    if (++emulator::at_pair[pair] == 2 * emulator::threads) {
        emulator::at_pair[pair] = 0;
        ++emulator::met[pair];
        emulator::wake();
    }
    while (emulator::met[pair] == turn) { emulator::leave(emulator::AT_EVENT); }
}
static inline void meet_workers() { emulator::wait_for_some(1, 256); }
static inline void begin_products() { emulator::meet("wgmma.fence", 0); }
static inline void multiply(float* sum, unsigned long long left, unsigned long long right, int adds) {
    emulator::sets_of(emulator::products).back().push_back([=] {
        const int first = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        float rows[2][8];
        for (int i = 0; i < 16; ++i) { rows[i / 8][i % 8] = emulator::number(left, first + i / 8 * 8, i % 8); }
        auto at = [=](int n, int k) { return emulator::number(right, n, k); };
        emulator::multiply<256, 8>(sum, rows, at, adds);
    });
}
static inline void multiply(float* sum, const unsigned* left, unsigned long long right, int adds) {
    uint4 mine = {left[0], left[1], left[2], left[3]};
    const auto slots = emulator::meet("wgmma.mma_async", mine);
    struct { float of[2][16]; } rows;
    for (int i = 0; i < 4; ++i) {
        const uint4 four = emulator::handed<uint4>(slots, int(threadIdx.x) % 32 / 4 * 4 + i);
        const unsigned part[4] = {four.x, four.y, four.z, four.w};
        for (int v = 0; v < 8; ++v) {
            const unsigned bits = part[v / 2] >> v % 2 * 16 << 16;
            rows.of[v / 2 % 2][v / 4 * 8 + 2 * i + v % 2] = __uint_as_float(bits);
        }
    }
    emulator::sets_of(emulator::products).back().push_back([=] {
        auto at = [=](int n, int k) { return emulator::number_of_half(right, n, k); };
        emulator::multiply<64, 16>(sum, rows.of, at, adds);
    });
}
static inline void end_products() { emulator::sets_of(emulator::products).emplace_back(); }
static inline void await_earlier_products() { emulator::await_products(1); }
static inline void await_products(float*) { emulator::await_products(0); }
template <int left> void await_products(float*) { emulator::await_products(left); }
static inline void copy_part(unsigned to, const float* from) {
    emulator::sets_of(emulator::parts).back().push_back(
        [=] { memcpy(emulator::shared_at(emulator::self / emulator::threads, to, 16), from, 16); });
}
static inline void end_copies() { emulator::sets_of(emulator::parts).emplace_back(); }
template <int left> void await_copies() { emulator::await_sets(emulator::sets_of(emulator::parts), left); }
