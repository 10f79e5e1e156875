package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// charges is the bill of each instance, as the market's meter has it.
func (s *Server) charges(query url.Values) answer {
	var filter struct {
		Day  struct{ Gte, Lte *float64 }
		Type struct{ In []string }
	}
	if json.Unmarshal([]byte(query.Get("select_filters")), &filter) != nil || filter.Day.Gte == nil || filter.Day.Lte == nil {
		return reply(400, map[string]any{"success": false, "msg": "Must provide both 'day' gte and lte filters for instance charges"})
	}
	limit := 100
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n > 0 {
		limit = min(n, TheContract.Limits.Charges)
	}
	from := 0
	if token := query.Get("after_token"); token != "" {
		if _, err := fmt.Sscanf(token, "c%d", &from); err != nil || from < 0 {
			return refuse(400, "invalid_token", "Invalid pagination token")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := []map[string]any{}
	for _, i := range s.instances {
		end := i.Destroyed
		if end.IsZero() {
			end = s.now()
		}
		billed := end
		if last := s.now().Add(-s.ChargesLag); billed.After(last) {
			billed = last
		}
		if billed.Before(i.Created) || float64(end.Unix()) < *filter.Day.Gte || float64(i.Created.Unix()) > *filter.Day.Lte ||
			len(filter.Type.In) > 0 && !slices.Contains(filter.Type.In, "instance") {
			continue
		}
		rows = append(rows, s.charge(i, billed))
	}
	if query.Get("latest_first") != "false" {
		slices.Reverse(rows)
	}
	total := len(rows)
	rows = rows[min(from, total):]
	var next any
	if len(rows) > limit {
		rows, next = rows[:limit], fmt.Sprintf("c%d", from+limit)
	}
	return reply(200, map[string]any{"success": true, "count": len(rows), "total": total, "next_token": next, "results": rows})
}

// charge is the bill of one instance until a time.
func (s *Server) charge(i *Instance, end time.Time) map[string]any {
	gpu, disk, down := s.parts(i, end)
	item := func(kind, words string, amount float64) map[string]any {
		return map[string]any{
			"start": i.Created.Unix(), "end": end.Unix(), "type": kind, "source": nil, "description": words, "amount": round(amount, 6),
			"metadata": map[string]any{}, "items": []any{},
		}
	}
	meta := map[string]any{}
	if i.Label != "" {
		meta["label"] = i.Label
	}
	return map[string]any{
		"start": i.Created.Unix(), "end": end.Unix(), "type": "instance", "source": fmt.Sprintf("instance-%d", i.ID),
		"description": fmt.Sprintf("Instance %d Charges", i.ID), "amount": round(gpu+disk+down, 3), "metadata": meta,
		"items": []any{
			item("gpu", fmt.Sprintf("%.3f hours at $%.3f/hour", i.GPUTime.Hours(), s.hourly(i)), gpu),
			item("disk", fmt.Sprintf("%.1f GB", i.Disk), disk), item("bwd", fmt.Sprintf("%d GB down", imageSize), down),
		},
	}
}

func round(f float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(f*p) / p
}
