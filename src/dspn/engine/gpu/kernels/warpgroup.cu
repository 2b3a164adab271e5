// Instructions of Hopper's tensor cores, and copies that threads do not wait for: put before the text of
// files that are compiled for sm_90a. The emulator has others in their place.

typedef unsigned long long address_t;

// Which output row n of a tile of the matrix has: so a thread finds four neighbours in its registers.
__device__ __forceinline__ int output_of(int n) { return n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2; }

#ifndef EMULATED

__device__ __forceinline__ unsigned shared_address(const void* from) {
    return (unsigned)__cvta_generic_to_shared(from);
}

// Between reads and writes of threads and those of copies and tensor cores.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async;" : : : "memory"); }

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// Until all products but those that were ended last are done.
__device__ __forceinline__ void await_earlier_products() {
    asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
}

// Copies 16 bytes from the card's memory to an address of shared memory.
__device__ __forceinline__ void copy_part(unsigned to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

// Ends a set of such copies of a thread.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Until all sets but the last `left` are there, for the thread itself.
template <int left> __device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(left) : "memory");
}

#define EIGHT(i)                                                                                     \
    "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]),            \
        "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])

// Adds products of 64 sequences, of which the warp has 16, and 64 outputs over 16 nodes, or begins with them.
__device__ __forceinline__ void multiply(float* sum, const unsigned* left, address_t right, int adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n}\n"
        : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24)
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(adds));
}

// Until all products but the last `left` sets are done; `sum` is not read before.
template <int left> __device__ __forceinline__ void await_products(float* sum) {
    asm volatile("wgmma.wait_group.sync.aligned %32;"
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24) : "n"(left) : "memory");
}

#endif

// Where the first tile may begin from an address on.
__device__ __forceinline__ unsigned first_tile(unsigned address) { return (address + 1023) & ~1023u; }

// What tensor cores are told of a tile: its address, 1,024 bytes from one set of 8 rows to the next, parts
// in the order of 128 bytes.
__device__ __forceinline__ address_t described(unsigned address) {
    return address_t((address & 0x3ffff) >> 4) | address_t(1) << 16 | address_t(1024 >> 4) << 32 |
           address_t(1) << 62;
}
