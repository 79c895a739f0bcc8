package scheduler

import (
	"reflect"
	"testing"
)

func one(id uint64, phase Phase, tokens int) Turn {
	return Turn{Items: []Item{{ID: id, Phase: phase, Tokens: tokens}}}
}

func want(t *testing.T, p *RoundRobin, plan Turn) {
	t.Helper()
	if got := p.Next(); !reflect.DeepEqual(got, plan) {
		t.Fatalf("plan %+v, want %+v", got, plan)
	}
}

func add(t *testing.T, p *RoundRobin, r Request) {
	t.Helper()
	if err := p.Add(r); err != nil {
		t.Fatal(err)
	}
	p.Want(r.ID, true)
}

func TestPrefillLeavesTheLastTokenToDecode(t *testing.T) {
	p := NewRoundRobin()
	add(t, p, Request{ID: 1, Pending: 10, PrefillStep: 4})
	for _, n := range []int{4, 4, 1} {
		want(t, p, one(1, Prefill, n))
		p.Prefilled(1, n)
	}
	want(t, p, one(1, Decode, 1))
	want(t, p, one(1, Decode, 1))
}

func TestRequestsTakeTurns(t *testing.T) {
	p := NewRoundRobin()
	add(t, p, Request{ID: 1, Pending: 1, PrefillStep: 8})
	add(t, p, Request{ID: 2, Pending: 9, PrefillStep: 8})
	add(t, p, Request{ID: 3, Pending: 1, PrefillStep: 8})
	want(t, p, one(1, Decode, 1))
	want(t, p, one(2, Prefill, 8))
	p.Prefilled(2, 8)
	want(t, p, one(3, Decode, 1))
	want(t, p, one(1, Decode, 1))
	want(t, p, one(2, Decode, 1))
	p.Remove(1)
	want(t, p, one(3, Decode, 1))
	want(t, p, one(2, Decode, 1))
}

func TestOnlyWantedRequestsRun(t *testing.T) {
	p := NewRoundRobin()
	add(t, p, Request{ID: 1, Pending: 1, PrefillStep: 8})
	add(t, p, Request{ID: 2, Pending: 1, PrefillStep: 8})
	p.Want(1, false)
	want(t, p, one(2, Decode, 1))
	want(t, p, one(2, Decode, 1))
	p.Want(2, false)
	want(t, p, Turn{})
	p.Want(1, true)
	want(t, p, one(1, Decode, 1))
}

func TestRemovalKeepsTheTurn(t *testing.T) {
	p := NewRoundRobin()
	for id := uint64(1); id <= 3; id++ {
		add(t, p, Request{ID: id, Pending: 1, PrefillStep: 1})
	}
	want(t, p, one(1, Decode, 1))
	want(t, p, one(2, Decode, 1))
	p.Remove(1) // before the turn
	want(t, p, one(3, Decode, 1))
	p.Remove(3) // where the turn stands after wrapping
	want(t, p, one(2, Decode, 1))
	p.Remove(2)
	p.Remove(2)
	want(t, p, Turn{})
	if p.Len() != 0 {
		t.Fatalf("%d requests are left", p.Len())
	}
}

func TestBadRequests(t *testing.T) {
	p := NewRoundRobin()
	add(t, p, Request{ID: 1, Pending: 1, PrefillStep: 1})
	for _, r := range []Request{{ID: 1, Pending: 1, PrefillStep: 1}, {ID: 2, PrefillStep: 1}, {ID: 3, Pending: 1}} {
		if p.Add(r) == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}
