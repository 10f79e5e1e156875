// Package assembly builds an agent from its configuration: its queue, its runner, its state and its
// log.
package assembly
