// Package vastai speaks with the marketplace of Vast.ai: offers, instances, logs.
// It has two transports behind one interface, the REST API and the vastai program,
// and knows nothing of tasks.
//
// Nothing that it returns or says in an error holds a key, a variable of an
// instance or the address of a log, with one exception: Instance.Env, which the
// caller requests by name.
package vastai
