// Package server is a stateful market of machines that speaks Vast.ai's API, as far
// as the agent and the vastai program use it: with a clock, a billing meter,
// containers that really run, and faults to inject.
package server
