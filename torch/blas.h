#pragma once

namespace lopt {

// Whether several threads may call the BLAS that LibTorch uses at once. OpenBLAS built without
// threads (Debian's libopenblas0-serial) shares work memory between calls without a lock: where two
// threads multiply at once, some products are wrong.
bool BlasIsThreadSafe();

// Has OpenBLAS use the calling thread alone; other libraries follow at::set_num_threads.
void KeepBlasOnOneThread();

}  // namespace lopt
