// Package probe keeps what nodes really have: the GPUs that their drivers report, and their local disk.
//
// Script is what a node runs; it writes a file NODE@CLUSTER of lines into a directory of the user or of the site:
//
//	date 2026-11-26T05:00:00Z
//	nvidia NAME, MIB[, Enabled|Disabled[, CC]]   a GPU that the job sees, its MIG mode, its compute capability
//	of NAME, slice PROFILE                       a slice (MIG) that the job sees, behind the GPU that has it
//	installed NAME                               a GPU that the kernel has, whether the job sees it or not
//	amd NAME, MIB
//	intel NAME, MIB
//	disk MIB                                     the size of /tmp
//
// People may write such a file, too. Lines of other words are skipped.
package probe
