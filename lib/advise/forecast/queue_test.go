package forecast

import (
	"reflect"
	"testing"
)

func TestOrder(t *testing.T) {
	c := []Candidate{
		{Partition: "p", Tier: 1, Priority: 5, Submit: 10, JobID: 1, Eligible: true, Count: 1},
		{Partition: "p", Tier: 1, Priority: 9, Submit: 20, JobID: 2, Eligible: true, Count: 10},
		{Partition: "q", Tier: 2, Priority: 1, Submit: 30, JobID: 3, Eligible: true},
		{Partition: "p", Tier: 1, Priority: 99, Submit: 1, JobID: 4},
		{Partition: "p", Tier: 1, Priority: 1, Submit: 50, JobID: 5, Eligible: true, HasReservation: true},
		{Partition: "p", Tier: 1, Priority: 5, Submit: 10, JobID: 0, Eligible: true},
	}
	order := Order(c)
	if want := []int{4, 2, 1, 5, 0, 3}; !reflect.DeepEqual(order, want) {
		t.Errorf("order %v; want %v", order, want)
	}
	if got, want := Ranks(c, order), []int{13, 2, 1, 0, 1, 12}; !reflect.DeepEqual(got, want) {
		t.Errorf("ranks %v; want %v", got, want)
	}
}
