// Package tool has a package for each tool: its flags, and the wiring of what it uses. It has no code
// of its own.
//
// # Face
//
// Main of each package, which is one line over run(ctx, args, stdin, stdout, stderr) int. A program in
// cmd calls one of them; cmd/ponos calls all, by the name it was started with.
//
// # Packages
//
//	cancel       ponos-cancel
//	fairshare    fairshare: jobs, shares, holes, forecasts as tables, views and pictures
//	jobpool      jobpool, and the pilots that give a pool its nodes
//	lfind        lfind
//	list         ponos-list
//	logs         ponos-log
//	offers       vast-offers
//	poll         ponos-poll
//	reap         vast-reap
//	retry        ponos-retry
//	run          ponos-run: submit and setup, with the turns of an agent in the same process
//	setup        ponos-setup
//	start        ponos-start
//	stop         ponos-stop
//	submit       ponos-submit
//	task         ponos-task
//	worker       ponos-worker, which runs in the jobs of a local agent and of pilots
//
// # Files
//
// Those of the components. jobpool copies itself to RUN/bin besides, for the workers.
//
// # Promises, and the tests that hold them
//
//	Each flag is in its page, and is completed
//	    testscripts/docs/docs_test.go:TestEveryFlagIsInItsManPage
//	    testscripts/docs/docs_test.go:TestEveryFlagIsCompleted
//	Each column of a table is explained
//	    testscripts/docs/columns_test.go:TestColumnsAreExplained
//	Help fits a terminal, and messages use the words of the field
//	    testscripts/docs/docs_test.go:TestHelpFitsATerminal
//	    testscripts/docs/words_test.go:TestWords
//	Examples of pages do what they show
//	    testscripts/docs/examples_test.go:TestExamples
//	Each action of a turn goes through a pipe, and the tools end as their pages say
//	    testscripts/agent/agent_test.go:TestLocal
//	    testscripts/agent/agent_test.go:TestSlurm
package tool
