package cgroup

// Vacate is for tests of the kernel.
var Vacate = vacate
