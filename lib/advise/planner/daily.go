package planner

import (
	"context"

	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// reportsAtOnce is how many days sreport is asked for side by side.
const reportsAtOnce = 4

// Daily is what jobs of a period used of a resource, in seconds of it by day; who says whose
// a job of a user and account is.
func (a *Asker) Daily(ctx context.Context, p slurm.Period, tres string, who func(user, account string) string) (*priority.Daily, error) {
	daily, now := priority.NewDaily(p.Since, p.Until), a.Now().Unix()
	return daily, a.Client.EachRun(ctx, p, func(u *slurm.Record) error {
		if u.Start == 0 {
			return nil
		}
		end := u.End
		if end == 0 {
			end = now
		}
		amount := u.TRES[tres]
		if tres == "gres/gpu" {
			amount = u.TRES.GPUs()
		}
		daily.Add(priority.Use{Start: u.Start, End: end, Who: who(u.User, u.Account), Amount: amount})
		return nil
	})
}

// DailyReport is Daily as sreport has it, which is asked for each day. It knows whole hours
// only.
func (a *Asker) DailyReport(
	ctx context.Context, p slurm.Period, tres string, who func(user, account string) string,
) (*priority.Daily, error) {
	daily := priority.NewDaily(p.Since, p.Until)
	sums := make([][]slurm.ReportRow, len(daily.Days))
	free := make(chan struct{}, reportsAtOnce)
	var questions []func(context.Context) error
	for i, day := range daily.Days {
		of := p
		if i+1 < len(daily.Days) {
			of.Until = daily.Days[i+1]
		}
		if day.After(p.Since) {
			of.Since = day
		}
		questions = append(questions, func(ctx context.Context) error {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-free }()
			var err error
			sums[i], err = a.Client.Report(ctx, of, tres)
			return err
		})
	}
	if err := Together(ctx, questions...); err != nil {
		return nil, err
	}
	for i, rows := range sums {
		for _, r := range rows {
			if r.User != "" && r.TRES == tres { // accounts are sums of their users
				daily.AddDay(i, who(r.User, r.Account), r.Seconds)
			}
		}
	}
	return daily, nil
}
