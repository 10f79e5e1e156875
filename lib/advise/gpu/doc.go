// Package gpu is a catalogue of GPUs: what the names that drivers, Slurm, features
// and people give them mean, and how much memory and which compute capability they
// have. It holds the data-centre and workstation GPUs from Kepler on, and the
// consumer cards that clusters are built of.
//
// A name may mean several models, as "a100" does; then what is known of the GPU is
// a range, and questions about it may have the answer unknown.
//
// # Sources of the figures
//
// Memory of NVIDIA's is memory.total of nvidia-smi with drivers from 510 on (470
// for Kepler) with ECC as shipped; it is less than the gigabytes on the box where
// ECC or the driver takes its part. The memory of MIG slices is that of
// "nvidia-smi mig -lgip" in NVIDIA's MIG User Guide. Compute capabilities are those
// of NVIDIA's table of CUDA GPUs, years those of the launch. AMD's memory is "VRAM
// Total Memory" of rocm-smi, and AMD's table of accelerator specifications; an
// MI250 or MI250X is two devices, each of which a job sees as one GPU. Intel's is
// that of Intel's product specifications; a Max 1550 is two devices too.
//
// A sample is held to published figures by TestPublishedFigures: NVML's memory as
// https://thundergolfer.com/blog/nvidia-gpu-memory-capacity lists it and as logs of
// nvidia-smi in issues on GitHub show it, https://developer.nvidia.com/cuda-gpus and
// https://developer.nvidia.com/cuda-legacy-gpus, and
// https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html. Other figures have no
// second source.
//
// Users correct and extend the catalogue by a file, see Load.
package gpu
