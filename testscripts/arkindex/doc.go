// Package arkindex tests the agent against an Arkindex server, with a real worker
// that stands on the packages of Arkindex.
package arkindex
