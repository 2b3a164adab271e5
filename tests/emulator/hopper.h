// The instructions of Hopper that hopper.cu uses. Blocks of a launch run side by side here, and wait for
// each other.
//
// Copies are done as soon as they are ordered, products as late as they may be: what is overwritten too
// early, or read before it is there, gives other numbers.
#include <map>
#include <vector>

#define EMULATED
#define __cluster_dims__(...)

static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline int __ldcg(const int* from) { return *from; }
static inline void __threadfence() {}
static inline int atomicMin(int* to, int own) {
    const int before = *to;
    *to = min(before, own);
    return before;
}

namespace emulator {

constexpr unsigned BEGIN_OF_DYNAMIC = 4096 + 16;  // no multiple of what tiles begin at
struct Barrier { int count, pending; long long bytes; unsigned turn; };
struct Product { float* sum; unsigned long long left, right; int adds; };
static std::map<unsigned, Barrier> barriers[MOST_BLOCKS];
static std::vector<std::vector<Product>> products[MOST_THREADS];  // the last set has not ended
static std::vector<std::vector<Product>>& sets() {
    if (products[self].empty()) { products[self].emplace_back(); }
    return products[self];
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

// The number `k` of a row of a tile, without the bits that tensor cores do not read.
static float number(unsigned long long described, int row, int k) {
    if (described >> 62 != 1) { fail("only parts in the order of 128 bytes are emulated"); }
    const unsigned begin = unsigned(described & 0x3fff) << 4, step = unsigned(described >> 32 & 0x3fff) << 4;
    const unsigned address = begin + row / 8 * step + row % 8 * 128 + 4 * k;
    const unsigned place = address ^ (address >> 7 & 7) << 4;
    const char* from = shared_at(self / threads, place & ~15u, 16) + place % 16;
    return __uint_as_float(*reinterpret_cast<const unsigned*>(from) & 0xffffe000u);
}

// What a thread has of a product of 64 rows and 256 columns over 8 numbers.
static void multiply(const Product& own) {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16 + lane / 4;
    float left[2][8];
    for (int i = 0; i < 16; ++i) { left[i / 8][i % 8] = number(own.left, first + i / 8 * 8, i % 8); }
    for (int column = 0; column < 64; ++column) {
        const int n = column / 2 * 8 + lane % 4 * 2 + column % 2;
        float right[8];
        for (int k = 0; k < 8; ++k) { right[k] = number(own.right, n, k); }
        for (int r = 0; r < 2; ++r) {
            float& sum = own.sum[column / 2 * 4 + r * 2 + column % 2];
            double found = own.adds ? sum : 0.0;
            for (int k = 0; k < 8; ++k) { found += double(left[r][k]) * double(right[k]); }
            sum = float(found);
        }
    }
}

// Does all products but those of the sets that ended last; no lane goes on before its warp has.
static void await_sets(unsigned last) {
    auto& own = sets();
    if (!own.back().empty()) { fail("products have not ended"); }
    while (own.size() > last + 1) {
        for (const Product& product : own.front()) { multiply(product); }
        own.erase(own.begin());
    }
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
    emulator::sets().back().push_back({sum, left, right, adds});
}
static inline void end_products() { emulator::sets().emplace_back(); }
static inline void await_earlier_products() { emulator::await_sets(1); }
static inline void await_products(float*) { emulator::await_sets(0); }
