// Package vast tests the agent's vast mode and its tools against a market of its own:
// with both transports, the real vastai program and a real worker. Nothing in it
// can reach another machine.
package vast
