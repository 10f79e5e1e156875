// Package packages tests what "make dist" makes: it is installed, run, upgraded
// and removed in roots of its own, one of them with a systemd of its own.
package packages
