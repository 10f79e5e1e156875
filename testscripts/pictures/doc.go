// Command pictures shows the tools at work: it types commands into a real terminal
// (tmux), and draws what stands there as SVG, as a still or with the frames on the
// way. "make pictures" draws those of the README.
//
//	pictures -bin DIR -out DIR [SCENE...]
//
// Scenes of Slurm are played on the cluster of testscripts/cluster/up, whose
// variables must be set, by its user alice.
package main
