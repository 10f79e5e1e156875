// Package vastai is a client of the Vast.ai marketplace: offers, instances and logs. It has two
// transports behind one interface, the REST API and the vastai program, and knows nothing of
// tasks.
//
// No result or error contains a key, a variable of an instance or the address of a log. The
// only exception is Instance.Env, with which the caller requests a variable by name.
package vastai
