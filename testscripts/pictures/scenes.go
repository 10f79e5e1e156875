package main

import "slices"

// scene is what is shown in one picture.
type scene struct {
	name, title   string
	columns, rows int
	tools         []string
	slurm         bool     // it is played on the test cluster, by alice
	moves         bool     // with the frames on the way
	before, after []string // not seen
	steps         []step
	// same: each run prints the same, but for numbers.
	same bool
}

// step is a command that is typed.
type step struct {
	command string
	until   string // interrupt it when this stands there
}

// crowd fills the cluster: what runs, and what waits for it.
var crowd = []string{
	"bob: sbatch -Q -o /dev/null -J protein -A research -p gpu -N2 --exclusive -t 4:00:00 --wrap 'sleep 600'",
	"carol: sbatch -Q -o /dev/null -J climate -A csi -p cpu -N1 --exclusive -t 2:00:00 --wrap 'sleep 600'",
	"sleep 2",
	"bob: sbatch -Q -o /dev/null -J fold -A research -p gpu --gres=gpu:2 -t 12:00:00 --wrap 'sleep 600'",
	"carol: sbatch -Q -o /dev/null -J ocean -A csi -p cpu -N2 --exclusive -t 1:00:00 --wrap 'sleep 600'",
	"sbatch -Q -o /dev/null -J train -A research -p gpu --gres=gpu:1 -t 8:00:00 --wrap 'sleep 600'",
	"sbatch -Q -o /dev/null -J sweep -A research -p gpu --gres=gpu:1 -t 1:00:00 --array=1-20 --wrap 'sleep 600'",
	// Slurm has planned when they start.
	"for i in $(seq 100); do [ \"$(squeue -h -t PD -n train,ocean -O StartTime | grep -c T)\" = 2 ] && break; sleep 0.2; done",
}

var home = []string{"scancel --me", "bob: scancel --me", "carol: scancel --me"}

// agent takes turns every second, on the partition cpu of the cluster.
var agent = []string{
	"ponos-setup --init ~/ponos",
	"printf '%s\\n' \"queue: spool:$HOME/ponos/spool\" \"data_dir: $HOME/ponos/data\" \"pid_file: $HOME/ponos/ponos.pid\" 'slurm: {base: {account: research}, cpu: {partition: cpu, time: \"1:00:00\"}}' >~/ponos/ponos.yaml",
	"ponos-poll",
}

var agentEnds = []string{
	"kill $(cat ~/ponos/ponos.pid) && while kill -0 $(cat ~/ponos/ponos.pid) 2>/dev/null; do sleep 0.1; done; true",
	"scancel --me; for i in $(seq 50); do [ -z \"$(squeue -h --me)\" ] && break; sleep 0.1; done",
}

var scenes = []scene{
	{
		name: "sweep", tools: []string{"ponos-setup", "ponos-submit", "ponos-list", "ponos-log", "ponos-retry", "ponos-poll", "ponos-stop", "ponos-start", "ponos-worker"},
		title: "A sweep on Slurm: one of three tasks fails, its log says why, and it is retried", columns: 92, rows: 16, slurm: true,
		before: slices.Concat(agent, []string{
			"(ponos-poll --every 1s | ponos-stop | ponos-start) >agent.log 2>&1 &",
			"printf 'lr\\n0.01\\n0.1\\n1\\n' >lr.tsv",
			// One task meets a broken GPU, once.
			"printf '%s\\n' '#!/bin/sh' '[ $2 = 1 ] && mkdir ~/met 2>/dev/null || exit 0' 'echo RuntimeError: CUDA error: uncorrectable ECC error >&2' 'exit 1' >train && chmod +x train",
		}),
		after: agentEnds,
		steps: []step{
			{command: "ponos-submit --wait --group lr --directory . --each lr.tsv -- ./train --lr {lr} >ids"},
			{command: "ponos-log lr-1 | grep Error"},
			{command: "ponos-retry lr-1 >>ids && ponos-submit --wait --group lr && ponos-list --group lr"},
		},
	},
	{
		name: "pipeline", tools: []string{"ponos-setup", "ponos-submit", "ponos-list", "ponos-poll", "ponos-stop", "ponos-start", "ponos-worker"}, title: "A task goes through the pipeline and is run by Slurm", columns: 108, rows: 26, slurm: true, moves: true,
		before: agent, after: agentEnds,
		steps: []step{
			{command: "ponos-submit --slug hello -- echo 'hello, world'"},
			{command: "ponos-poll | ponos-stop | ponos-start"},
			{command: "squeue --me --format '%.6i %.10P %.8u %.2t %N %k'"},
			{command: "ponos-poll --every 1s | ponos-stop | ponos-start >started.log &"},
			{command: "ponos-submit --wait --slug count -- sh -c 'seq 1 3; exit 3'"},
			{command: "ponos-list"},
		},
	},
	{
		name: "lfind", tools: []string{"lfind"}, title: "lfind finds options of sbatch, and says why", columns: 118, rows: 44, slurm: true, same: true,
		steps: []step{
			{command: "lfind 'cuda(mem=14G) * 2 & duration=4 days'"},
			{command: "lfind explain 'cuda(mem=14G) * 2 & duration=4 days'"},
		},
	},
	{
		name: "fairshare-jobs", tools: []string{"fairshare"}, title: "fairshare jobs tells who waits, in the scheduler's order, and why", columns: 140, rows: 30, slurm: true,
		before: crowd, after: home,
		steps: []step{{command: "fairshare jobs"}},
	},
	{
		name: "fairshare-holes", tools: []string{"fairshare"}, title: "fairshare holes draws the room that backfill can fill", columns: 100, rows: 40, slurm: true,
		before: crowd, after: home,
		steps: []step{{command: "fairshare holes --partition cpu,gpu --span 12h"}},
	},
	{
		name: "jobpool", tools: []string{"jobpool"}, title: "jobpool runs many commands at once", columns: 90, rows: 14, moves: true,
		before: []string{"for i in 1 2 3; do seq $((i * 37)) >run$i.csv; done"},
		steps: []step{
			{command: "seq 60 | jobpool -v -j 8 'sleep 0.$(({} % 6 + 2))'"},
			{command: "ls *.csv | jobpool -k 'wc -l <{}'"},
		},
	},
}
