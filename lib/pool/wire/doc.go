// Package wire is the protocol between scheduler and worker: one JSON object per line, in both
// directions, over the standard streams of any connecting program. The output of tasks follows the
// line that announces its length, unchanged and followed by a newline.
//
// Lines pass through srun, which forwards whole lines only. The worker sends first; output before its
// greeting (from a login shell) is skipped.
package wire
