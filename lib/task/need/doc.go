// Package need is what a task says of what it needs: options of sbatch whose names are
// checked, a resource request, and rules by which it is tried again. It is pure.
package need
