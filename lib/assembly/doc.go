// Package assembly puts an agent together from its configuration: which queue,
// which runner, where its state and its log go.
package assembly
