// Whole passes of large chains on Hopper: matrix products on its tensor cores, and what is done between
// them, in one kernel that stays on the card from the first slice to the last.
//
// Compiled for sm_90a with -DREAL=float. Two neighbouring blocks of threads, a pair, take 256 sequences and
// 256 nodes of a slice at a time, each block half of the sequences; both read the same rows of the matrix,
// and each brings half of these for both. In a block a thread of the first four warps orders the copies to
// shared memory, STAGES of them ahead of the other eight warps, which multiply. Pieces of work are
// numbered slice by slice, and pairs take turns at them; a piece waits until what it reads of the slice
// before is there. All blocks must be on the card at once: one to a multiprocessor.
//
// Vectors and matrices lie in tiles of 32 nodes, rows of 128 bytes whose eight parts are in the order that
// tensor cores read (part p of row r is at p ^ r % 8), 128 sequences or 256 outputs to a tile.

constexpr int STAGES = 4, DEPTH = 32, SEQUENCES = 128, OUTPUTS = 256, PAIR = 2 * SEQUENCES;
constexpr int LEFT = SEQUENCES * DEPTH, RIGHT = OUTPUTS * DEPTH, STAGE_BYTES = 4 * (LEFT + RIGHT);
constexpr int BARRIER_BYTES = 16 * STAGES;
constexpr int THREADS = 384, WORKERS = 256;
constexpr int MOST_TRIES = 1 << 25;  // of a wait for other blocks: without an end it could be for ever
constexpr int WINDOW = 8;  // times four numbers that a thread has asked for

// The place of four neighbouring nodes, from the one `node` on, of a row in tiles of so many rows.
__device__ __forceinline__ long long place_of(long long row, int node, int rows, int depths) {
    const long long tile = row / rows * depths + node / DEPTH;
    const int r = int(row % rows);
    return (tile * rows + r) * DEPTH + ((node % DEPTH / 4) ^ (r % 8)) * 4;
}

// Matrices [table][to][from] of `width` nodes in tiles; what is not there is 0.
extern "C" __global__ void arrange(const float* __restrict__ matrix, int width, int blocks, int depths,
                                   long long parts, float* __restrict__ tiles) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= parts) { return; }
    const int from = 4 * int(at % (8 * depths)), n = int(at / (8 * depths) % OUTPUTS);
    const long long block = at / (8 * depths) / OUTPUTS;
    const int to = int(block % blocks) * OUTPUTS + output_of(n);
    float4 four = {0, 0, 0, 0};
    if (to < width && from < width) {
        four = *reinterpret_cast<const float4*>(matrix + (block / blocks * width + to) * width + from);
    }
    *reinterpret_cast<float4*>(tiles + place_of(block * OUTPUTS + n, from, OUTPUTS, depths)) = four;
}

// Instructions of the card, for which the emulator has others.
#ifndef EMULATED

__device__ __forceinline__ void begin_barrier(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void await(unsigned barrier, unsigned turn) {
    asm volatile(
        "{\n.reg .pred there;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
        "@there bra done;\nbra again;\ndone:\n}\n" : : "r"(barrier), "r"(turn) : "memory");
}

__device__ __forceinline__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 : : "r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the same barrier of one block of the pair. It hands over no writes: a wider scope than that of
// the block would put a fence into every arrival.
__device__ __forceinline__ void arrive_at(unsigned barrier, int block) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n"
        : : "r"(barrier), "r"(block) : "memory");
}

__device__ __forceinline__ void copy(unsigned to, const float* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 : : "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void copy_to_both(unsigned to, const float* from, unsigned bytes, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;"
        : : "r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((unsigned short)3) : "memory");
}

// Until as many pieces of work are done.
__device__ __forceinline__ void await_pieces(const int* done, int wanted) {
    for (int now = 0, tries = 0; now < wanted;) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(done) : "memory");
        if (++tries > MOST_TRIES) { __trap(); }
    }
}

__device__ __forceinline__ void count_piece(int* done) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(done) : "memory");
}

// Barriers that have begun are known to the other block.
__device__ __forceinline__ void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

__device__ __forceinline__ void meet_pair() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
                 : : : "memory");
}

__device__ __forceinline__ void meet_workers() {
    asm volatile("bar.sync 1, %0;" : : "n"(WORKERS) : "memory");
}

// The registers of the threads that order copies go to those that multiply.
__device__ __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }

// Adds products of 64 sequences and 256 outputs over 8 nodes, or begins with them.
__device__ __forceinline__ void multiply(float* sum, address_t left, address_t right, int adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "
        "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
        "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
        "%126, %127"
        "}, %128, %129, adds, 1, 1;\n}\n"
        : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56),
          EIGHT(64), EIGHT(72), EIGHT(80), EIGHT(88), EIGHT(96), EIGHT(104), EIGHT(112), EIGHT(120)
        : "l"(left), "l"(right), "r"(adds));
}

// Until all are done; `sum` is not read before.
__device__ __forceinline__ void await_products(float* sum) {
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56),
                   EIGHT(64), EIGHT(72), EIGHT(80), EIGHT(88), EIGHT(96), EIGHT(104), EIGHT(112), EIGHT(120)
                 : : "memory");
}

#endif

// Tells both blocks that a warp has read a stage.
__device__ __forceinline__ void release(unsigned barrier) {
    if (threadIdx.x % 32 < 2) { arrive_at(barrier, threadIdx.x % 32); }
    __syncwarp();
}

// The pieces of work of a pass in their order.
struct Work {
    const int* active;  // sequences that have a slice at each height
    int heights, blocks, down;
    int left, piece, height;
    // One count alone ends the loop: where a height was compared with both ends, nvcc 13.0 left out all
    // turns of the loop but the first.
    __device__ __forceinline__ bool begin() {
        left = heights;
        piece = 0;
        return go_on(blockIdx.x / 2);
    }
    __device__ __forceinline__ bool go_on(int by) {
        for (piece += by; left > 0; --left) {
            height = down ? left - 1 : heights - left;
            const int own = (active[height] + PAIR - 1) / PAIR * blocks;
            if (piece < own) { return true; }
            piece -= own;
        }
        return false;
    }
    __device__ __forceinline__ int output() const { return piece % blocks * OUTPUTS; }
    __device__ __forceinline__ int row() const {
        return piece / blocks * PAIR + int(blockIdx.x % 2) * SEQUENCES;
    }
};

// What both passes are given. `done` counts the pieces that are done of each 128 rows.
struct Pass {
    float *even, *odd;  // vectors of the slices at even heights, and at odd ones
    const float* matrix;
    const int* tables;  // which matrix the weights of each height are; none where there is one
    const int *lengths, *active;
    int* done;
    int heights, width;
    __device__ __forceinline__ float* vectors(int height) const { return height % 2 ? odd : even; }
};

// The pieces of its rows that a piece waits for: all of them above or below.
__device__ __forceinline__ int needed(const Pass& pass, const Work& work) {
    if (!work.down) { return work.blocks * work.height; }
    return work.blocks * (pass.lengths[work.row() / PAIR * PAIR] - 1 - work.height);
}

// What a thread reads of the rows of its two sequences, four nodes of a piece at a time: while products are
// found it asks for the first, and for another as it takes one. Rows are none where there is no slice.
template <int ARRAYS> struct Window {
    static constexpr int AHEAD = WINDOW / ARRAYS;
    char* memory;  // of the block
    int width, node;
    const float* rows[2][ARRAYS];
    // Where the threads have their places, behind the stages and their barriers.
    __device__ __forceinline__ unsigned address() const {
        const unsigned stages = first_tile(shared_address(memory));
        return stages + STAGES * STAGE_BYTES + BARRIER_BYTES + 16 * (threadIdx.x - 128);
    }
    __device__ __forceinline__ void begin(int output) {
        node = output + 4 * (threadIdx.x % 4);
#pragma unroll
        for (int c = 0; c < AHEAD; ++c) { ask(c); }
    }
    __device__ __forceinline__ bool has(int c) const {
        return rows[c / 16][0] != nullptr && node + 16 * (c % 16) < width;
    }
    static __device__ __forceinline__ int place(int c, int array) {
        return (c % AHEAD * ARRAYS + array) * WORKERS;
    }
    __device__ __forceinline__ void ask(int c) const {
        if (c < 32 && has(c)) {
#pragma unroll
            for (int array = 0; array < ARRAYS; ++array) {
                copy_part(address() + 16 * place(c, array), rows[c / 16][array] + node + 16 * (c % 16));
            }
        }
        end_copies();
    }
    // Of row c / 16 the nodes 16 (c % 16) behind the first.
    __device__ __forceinline__ void take(int c, float4* found) const {
        await_copies<AHEAD - 1>();
#pragma unroll
        for (int array = 0; array < ARRAYS; ++array) {
            found[array] = {0, 0, 0, 0};
            if (has(c)) {
                const unsigned offset = address() - shared_address(memory) + 16 * place(c, array);
                found[array] = *reinterpret_cast<const float4*>(memory + offset);
            }
        }
        ask(c + AHEAD);
    }
};

// The pass of one block; `use` does with the products of a piece what the slice asks for, `prepare` what can
// be done before, and `start` what needs the slice that products are made of.
template <typename Prepare, typename Start, typename Use>
__device__ __forceinline__ void run(
    const Pass& pass, int down, char* memory, Prepare prepare, Start start, Use use) {
    const unsigned stages = first_tile(shared_address(memory));
    const unsigned full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    const int depths = (pass.width + DEPTH - 1) / DEPTH;
    Work work = {pass.active, pass.heights, (pass.width + OUTPUTS - 1) / OUTPUTS, down, 0, 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            begin_barrier(full + 8 * s, 1);
            begin_barrier(empty + 8 * s, 2 * WORKERS / 32);
        }
        fence_barriers();
    }
    __syncwarp();
    meet_pair();
    unsigned step = 0;  // of all pieces
    if (threadIdx.x < 128) {
        give_registers();
        if (threadIdx.x == 0) {
            const int half = blockIdx.x % 2;
            for (bool more = work.begin(); more; more = work.go_on(gridDim.x / 2)) {
                const int wanted = needed(pass, work), block = work.row() / SEQUENCES;
                if (!wanted) { continue; }
                const float* left = pass.vectors(work.height + 1) + (long long)block * depths * LEFT;
                const int table = pass.tables == nullptr ? 0 : pass.tables[work.height + down];
                const long long tile = (long long)table * work.blocks + work.output() / OUTPUTS;
                const float* right = pass.matrix + tile * depths * RIGHT + half * (RIGHT / 2);
                auto ask_matrix = [&](int d) {
                    const unsigned stage = (step + d) % STAGES, turn = (step + d) / STAGES % 2;
                    const unsigned to = stages + stage * STAGE_BYTES + 4 * LEFT + half * 2 * RIGHT;
                    await(empty + 8 * stage, turn ^ 1);
                    expect(full + 8 * stage, STAGE_BYTES);
                    copy_to_both(to, right + (long long)d * RIGHT, 2 * RIGHT, full + 8 * stage);
                };
                auto ask_vectors = [&](int d) {
                    const unsigned stage = (step + d) % STAGES;
                    copy(stages + stage * STAGE_BYTES, left + (long long)d * LEFT, 4 * LEFT, full + 8 * stage);
                };
                // The matrix is there before the vectors are.
                const int early = min(depths, STAGES);
#pragma unroll 1
                for (int d = 0; d < early; ++d) { ask_matrix(d); }
                await_pieces(pass.done + block, wanted);
                fence_copies();
#pragma unroll 1
                for (int d = 0; d < depths; ++d) {
                    if (d >= early) { ask_matrix(d); }
                    ask_vectors(d);
                }
                step += depths;
            }
        }
        __syncwarp();
    } else {
        take_registers();
        const int part = threadIdx.x / 128 - 1;
        float sum[128];
        for (bool more = work.begin(); more; more = work.go_on(gridDim.x / 2)) {
            const bool has_product = needed(pass, work);
            prepare(work);
            if (has_product) {
                for (int d = 0; d < depths; ++d, ++step) {
                    const unsigned stage = step % STAGES;
                    await(full + 8 * stage, step / STAGES % 2);
                    __syncwarp();
                    if (!d) { start(); }
                    const unsigned at = stages + stage * STAGE_BYTES;
                    const address_t left = described(at + part * 2 * LEFT), right = described(at + 4 * LEFT);
                    begin_products();
#pragma unroll
                    for (int i = 0; i < DEPTH / 8; ++i) {
                        multiply(sum, left + 2 * i, right + 2 * i, d || i);
                    }
                    end_products();
                    if (d) {
                        await_earlier_products();
                        release(empty + 8 * ((step - 1) % STAGES));
                    }
                }
                await_products(sum);
                release(empty + 8 * ((step - 1) % STAGES));
            }
            use(work, has_product, sum);
            // What was written is read by copies of other multiprocessors; who counts vouches for all.
            fence_copies();
            __syncwarp();
            meet_workers();
            if (threadIdx.x == 128) { count_piece(pass.done + work.row() / SEQUENCES); }
            __syncwarp();
        }
    }
    meet_pair();
}

// Rows 64 part + 16 warp + lane / 4 + 8 r of a piece belong to a lane, and of them nodes 16 p + 4 (lane % 4)
// to the fourth behind it, which are `at(sum, p, r, v)`.
__device__ __forceinline__ int own_row(int r) {
    return (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4 + 8 * r;
}
__device__ __forceinline__ float at(const float* sum, int p, int r, int v) {
    return sum[8 * p + 4 * (v / 2) + 2 * r + v % 2];
}

// As `rise` of large.cu for every slice, but a vector is divided by the power of two below the largest entry
// of the one before: `peaks` are the bits of the largest entry of every slice, 0 before. `vectors` and
// `exponents` may be none. roots[block, sequence] is the share of 256 nodes in the value of the root.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) rise_all(
    float* even, float* odd, const float* matrix, const int* __restrict__ tables,
    const float* __restrict__ table, const float* __restrict__ bottom_table,
    const int* __restrict__ slot, const long long* __restrict__ first, const int* __restrict__ lengths,
    const int* __restrict__ active, int heights, int direction, int count, int width, float under,
    const float* __restrict__ top, int* done, float* __restrict__ vectors, int* __restrict__ exponents,
    int* peaks, unsigned long long* powers, int* least, double* __restrict__ roots) {
    const Pass pass = {even, odd, matrix, tables, lengths, active, done, heights, width};
    const int depths = (width + DEPTH - 1) / DEPTH;
    extern __shared__ char memory[];
    Window<1> window = {memory, width, 0, {}};
    long long rows[2];
    int scales[2];
    auto prepare = [&](const Work& work) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            scales[r] = 0;
            const int sequence = work.row() + own_row(r), h = work.height;
            const bool is_there = sequence < count && h < lengths[min(sequence, count - 1)];
            rows[r] = is_there ? first[sequence] + (long long)direction * h : 0;
            const float* from = h ? table : bottom_table;
            window.rows[r][0] = is_there ? from + (long long)slot[rows[r]] * width : nullptr;
        }
        window.begin(work.output());
    };
    auto start = [&]() {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (window.rows[r][0] != nullptr) { scales[r] = __ldcg(peaks + (rows[r] - direction)); }
        }
    };
    run(pass, 0, memory, prepare, start, [&](const Work& work, bool has_product, float* sum) {
        const int h = work.height, quarter = threadIdx.x % 4;
        float* to = pass.vectors(h);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int sequence = work.row() + own_row(r);
            const bool is_there = window.rows[r][0] != nullptr;
            const long long row = rows[r];
            const int scale = h ? max(exponent_in(unsigned(scales[r])), -126) : 0;
            const float unit = power_of_two(-scale);
            const bool is_last = is_there && h == lengths[sequence] - 1;
            float high = 0, low = 1;
#pragma unroll
            for (int p = 0; p < 16; ++p) {
                const int node = work.output() + 16 * p + 4 * quarter;
                float4 coefficients, found;
                window.take(16 * r + p, &coefficients);
                const float* c = reinterpret_cast<const float*>(&coefficients);
                float* f = reinterpret_cast<float*>(&found);
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    const float mixed = has_product ? at(sum, p, r, v) : 1.0f;
                    const float value = c[v] * unit * mixed + under;
                    if (node < width) {
                        high = fmaxf(high, value);
                        low = fminf(low, value);
                    }
                    f[v] = narrowed(value, 1);
                }
                if (is_there && node < DEPTH * depths) {
                    if (node >= width) { found = {0, 0, 0, 0}; }
                    *reinterpret_cast<float4*>(to + place_of(sequence, node, SEQUENCES, depths)) = found;
                    if (vectors != nullptr && node < width) {
                        *reinterpret_cast<float4*>(vectors + row * width + node) = found;
                    }
                }
            }
            double root = 0;
            for (int n = 0; is_last && n < OUTPUTS; n += 16) {
                const int node = work.output() + n + 4 * quarter;
                if (node >= width) { break; }
                const float* own = to + place_of(sequence, node, SEQUENCES, depths);
                for (int v = 0; v < 4; ++v) { root += double(own[v]) * double(top[node + v]); }
            }
            for (int other = 1; other < 4; other *= 2) {
                high = fmaxf(high, __shfl_xor_sync(EVERY_LANE, high, other));
                low = fminf(low, __shfl_xor_sync(EVERY_LANE, low, other));
                root += __shfl_xor_sync(EVERY_LANE, root, other);
            }
            if (quarter || !is_there) { continue; }
            atomicMax(peaks + row, __float_as_int(high));
            atomicMin(least + sequence, __float_as_int(low));
            if (is_last) { roots[(long long)(work.output() / OUTPUTS) * count + sequence] = root; }
            if (work.output() == 0) {
                atomicAdd(powers + sequence, (unsigned long long)(long long)scale);
                if (exponents != nullptr) { exponents[row] = scale; }
            }
        }
    });
}

// As `fall` of large.cu for every slice: derivatives of the last slice of a sequence are its factor times
// `top`.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) fall_all(
    float* even, float* odd, const float* matrix, const int* __restrict__ tables,
    const float* __restrict__ table, const int* __restrict__ slot,
    const long long* __restrict__ first, const int* __restrict__ lengths, const int* __restrict__ active,
    int heights, int direction, int count, int width, const float* __restrict__ top, int* done,
    const float* __restrict__ factor, const float* __restrict__ vectors,
    const int* __restrict__ exponents, int* __restrict__ highest, float* __restrict__ posteriors,
    float* __restrict__ uses) {
    const Pass pass = {even, odd, matrix, tables, lengths, active, done, heights, width};
    const int depths = (width + DEPTH - 1) / DEPTH;
    extern __shared__ char memory[];
    Window<2> window = {memory, width, 0, {}};
    long long rows[2];
    auto prepare = [&](const Work& work) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int sequence = work.row() + own_row(r);
            const bool is_there = sequence < count && work.height < lengths[min(sequence, count - 1)];
            rows[r] = is_there ? first[sequence] + (long long)direction * work.height : 0;
            window.rows[r][0] = is_there ? table + (long long)slot[rows[r]] * width : nullptr;
            window.rows[r][1] = vectors + rows[r] * width;
        }
        window.begin(work.output());
    };
    run(pass, 1, memory, prepare, [] {}, [&](const Work& work, bool has_product, float* sum) {
        const int h = work.height, quarter = threadIdx.x % 4;
        float* to = pass.vectors(h);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int sequence = work.row() + own_row(r);
            const bool is_there = window.rows[r][0] != nullptr;
            const bool begins = is_there && h == lengths[sequence] - 1;
            const long long row = rows[r];
            const float share = is_there ? factor[sequence] : 0.0f;
            const float unit = share > 0 && h ? power_of_two(-exponents[row]) : 0.0f;
            unsigned most = 0;
#pragma unroll
            for (int p = 0; p < 16; ++p) {
                const int node = work.output() + 16 * p + 4 * quarter;
                float4 taken[2], found;
                window.take(16 * r + p, taken);
                const float* c = reinterpret_cast<const float*>(&taken[0]);
                float *f = reinterpret_cast<float*>(&found), *x = reinterpret_cast<float*>(&taken[1]);
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    float derivative = at(sum, p, r, v);
                    if (begins || !has_product) {
                        derivative = node < width ? share * top[node + v] : 0.0f;
                    }
                    if (node < width) { most = max(most, bits_of(derivative)); }
                    x[v] = share > 0 ? x[v] * derivative : 0.0f;
                    f[v] = unit > 0 ? narrowed(c[v] * unit * derivative, 1) : 0.0f;
                }
                if (is_there && node < DEPTH * depths) {
                    if (node >= width) { found = {0, 0, 0, 0}; }
                    *reinterpret_cast<float4*>(to + place_of(sequence, node, SEQUENCES, depths)) = found;
                    if (node < width) {
                        *reinterpret_cast<float4*>(posteriors + row * width + node) = taken[1];
                        *reinterpret_cast<float4*>(uses + row * width + node) = found;
                    }
                }
            }
            for (int other = 1; other < 4; other *= 2) {
                most = max(most, __shfl_xor_sync(EVERY_LANE, most, other));
            }
            if (!quarter && is_there) { atomicMax(highest + sequence, exponent_in(most)); }
        }
    });
}
