/* A CUDA driver without a device: it counts as started in the process that has called cuInit, and in no other. */
static int started;
int cuInit(unsigned flags) { (void)flags; started = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return started ? 0 : 3; }
