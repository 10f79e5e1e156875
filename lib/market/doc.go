// Package market rents machines on Vast.ai, for one task each. It has no code of its own.
//
// # Face
//
// rented.Runner is a runner of tasks, and what vast-reap looks at; vastai.API is the market behind
// two transports; find and registry answer what an order needs to know. agent/assembly, vast-offers
// and vast-reap put them together.
//
// # Packages
//
//	entry                 the program that runs a task in a container: vast-entry
//	entry/vast-entry      its main
//	find                  filters of offers for a resource request
//	life                  the story of an order, a machine without effects
//	registry              what a container image runs by itself
//	rented                a machine for each task: orders, labels, ends, bills
//	vastai                offers, instances and logs of the market; the budget of its requests
//	vastai/own            what a container may ask the market of its own instance
//
// # Files
//
//	DATA/state/vast/              an order of each attempt, recorded before it is placed (rented)
//	~/.cache/ponos/market-HASH/   what the tools of a user know of an account, and when they asked last (vastai);
//	                              DATA/state/vast/market where there is no such directory
//
// # Promises, and the tests that hold them
//
//	No task is lost and none is rented for twice, whatever is killed, and whatever the market says
//	    lib/market/life/life_test.go:TestWalks
//	    lib/market/life/sharp_test.go:TestTableIsSharp
//	    testscripts/vast/killed_test.go:TestKilled
//	    testscripts/vast/crash_test.go:TestCrash
//	    testscripts/vast/scenario_test.go:TestStateLost
//	Requests to the market are bounded by time, not by tasks
//	    testscripts/vast/account_test.go:TestRequestsOfManyInstances
//	    lib/market/vastai/governor_test.go:TestGovernorShares
//	A machine that may run a task keeps it until it is known to be gone
//	    lib/market/rented/doubt_test.go:TestOneMachineAfterABootFault
//	    lib/market/rented/doubt_test.go:TestBegunAfterABootFault
//	    testscripts/vast/trouble_test.go:TestSlowImage
//	    testscripts/vast/trouble_test.go:TestSeveralNotFound
//	A list that lacks an instance proves little: one list counts once, and the id is asked for
//	    lib/market/rented/list_test.go:TestOneListCountsOnce
//	    lib/market/rented/doubt_test.go:TestListsLackAnInstance
//	    testscripts/vast/trouble_test.go:TestFalseLists
//	A fault reaches no further than its machine, and no credit is no fault
//	    lib/market/rented/scope_test.go:TestBrokenMachine
//	    lib/market/rented/scope_test.go:TestNoCredit
//	    testscripts/vast/trouble_test.go:TestCheapMachineIsBroken
//	    testscripts/vast/trouble_test.go:TestCreditUsedUp
//	A spending limit is a hard limit
//	    testscripts/vast/limits_test.go:TestMaxInstancesAndPrice
//	    testscripts/vast/limits_test.go:TestMaxCostPerTask
//	    lib/market/rented/money_test.go:TestMaxCostPerDay
//	    lib/market/rented/money_test.go:TestCreditCarries
//	A command begins only on a machine that is still wanted, and fit
//	    lib/market/entry/entry_test.go:TestNeverBegun
//	    lib/market/entry/machine_test.go:TestMachine
//	    lib/market/rented/unbegun_test.go:TestUnbegun
//	    testscripts/vast/trouble_test.go:TestRecycled
//	    testscripts/vast/trouble_test.go:TestWrongMachineBeginsNothing
//	Output is read whole, or is told where it is missing
//	    lib/market/entry/frame_test.go:FuzzFrames
//	    lib/market/rented/logs_test.go:TestFastOutput
//	    lib/market/rented/logs_test.go:TestOutputCut
//	    lib/market/rented/unbegun_test.go:TestPublishedOnce
//	    testscripts/vast/trouble_test.go:TestChattyTask
//	Keys are in no message, no argument and no log
//	    lib/market/vastai/filter_test.go:TestCleanHidesSecrets
//	    testscripts/vast/malice_test.go:TestKeyStaysAtTheMarket
//	    lib/market/entry/entry_test.go:TestKeyIsHidden
//	What is known of one market is behind an interface: another one, without logs and labels, takes 150 lines
//	    lib/market/rented/second_test.go:TestSecondMarket
//	    lib/market/rented/second_test.go:TestSecondMarketFails
//	Why a task waits is told, with the filter that removes most
//	    testscripts/vast/spool_test.go:TestReasons
//	    lib/market/rented/explain_test.go:TestWhichFilterRemovesMost
//	One odd row, order or log reaches no other task
//	    lib/market/rented/list_test.go:TestOddRowOfAnother
//	    lib/market/rented/order_test.go:TestOneOrderBroken
package market
