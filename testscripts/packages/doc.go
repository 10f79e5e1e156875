// Package packages tests what "make dist" makes: it is installed, run, upgraded
// and removed in roots of its own.
package packages
