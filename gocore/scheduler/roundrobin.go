package scheduler

import "fmt"

// Phase is where a request stands in its life.
type Phase int

// A request enters in Prefill (or in Decode when only one prompt token is left)
// and leaves by Remove.
const (
	Prefill Phase = iota
	Decode
)

func (p Phase) String() string {
	if p == Prefill {
		return "prefill"
	}
	return "decode"
}

// Request is what the planner needs to know of one.
type Request struct {
	ID uint64
	// Pending counts the prompt tokens that the cache does not hold yet. The
	// last one is decoded, not prefilled: its logits give the first token.
	Pending int
	// PrefillStep is the most tokens one prefill step may take.
	PrefillStep int
}

// Item is one request's part in a step.
type Item struct {
	ID     uint64
	Phase  Phase
	Tokens int // prompt tokens to prefill; 1 for decode (drafts come on top)
}

// Turn lists the requests of one step of RoundRobin, which serves one a step.
type Turn struct {
	Items []Item
}

// entry is a request with its place in life.
type entry struct {
	Request
	wanted bool
}

// RoundRobin serves one request a step, in turn, among those whose next token
// somebody waits for.
type RoundRobin struct {
	order []*entry // admission order
	next  int      // index in order of whose turn it is
}

// NewRoundRobin returns a planner without requests.
func NewRoundRobin() *RoundRobin { return &RoundRobin{} }

// Add admits a request at the end of the order.
func (p *RoundRobin) Add(r Request) error {
	if r.Pending < 1 || r.PrefillStep < 1 {
		return fmt.Errorf("scheduling request %d: pending %d and prefill step %d must be positive", r.ID, r.Pending, r.PrefillStep)
	}
	if p.find(r.ID) >= 0 {
		return fmt.Errorf("scheduling request %d: it is scheduled already", r.ID)
	}
	p.order = append(p.order, &entry{Request: r})
	return nil
}

// Remove takes a request out; an unknown one is ignored.
func (p *RoundRobin) Remove(id uint64) {
	i := p.find(id)
	if i < 0 {
		return
	}
	p.order = append(p.order[:i], p.order[i+1:]...)
	if i < p.next {
		p.next--
	}
}

// Want says whether somebody waits for the request's next token. Without that
// it rests, so that no request runs ahead of its reader.
func (p *RoundRobin) Want(id uint64, wanted bool) {
	if i := p.find(id); i >= 0 {
		p.order[i].wanted = wanted
	}
}

// Prefilled tells the planner that n prompt tokens entered the cache.
func (p *RoundRobin) Prefilled(id uint64, n int) {
	if i := p.find(id); i >= 0 {
		p.order[i].Pending = max(1, p.order[i].Pending-n)
	}
}

// Next plans one step; an empty turn means that there is nothing to do.
func (p *RoundRobin) Next() Turn {
	for k := range p.order {
		i := (p.next + k) % len(p.order)
		e := p.order[i]
		if !e.wanted {
			continue
		}
		p.next = (i + 1) % len(p.order)
		item := Item{ID: e.ID, Phase: Decode, Tokens: 1}
		if e.Pending > 1 {
			item.Phase = Prefill
			item.Tokens = min(e.Pending-1, e.PrefillStep)
		}
		return Turn{Items: []Item{item}}
	}
	return Turn{}
}

// All plans one step: all that decode, and of those that fill, in turn, as many
// as their prefill steps have room for together.
func (p *RoundRobin) All() Turn {
	var t Turn
	for _, e := range p.order {
		if e.wanted && e.Pending <= 1 {
			t.Items = append(t.Items, Item{ID: e.ID, Phase: Decode, Tokens: 1})
		}
	}
	taken, first := 0, p.next
	for k := range p.order {
		i := (first + k) % len(p.order)
		e := p.order[i]
		if !e.wanted || e.Pending <= 1 {
			continue
		}
		n := min(e.Pending-1, e.PrefillStep)
		if taken > 0 && taken+n > e.PrefillStep {
			break
		}
		taken, p.next = taken+n, (i+1)%len(p.order)
		t.Items = append(t.Items, Item{ID: e.ID, Phase: Prefill, Tokens: n})
	}
	return t
}

// Len counts the scheduled requests.
func (p *RoundRobin) Len() int { return len(p.order) }

func (p *RoundRobin) find(id uint64) int {
	for i, e := range p.order {
		if e.ID == id {
			return i
		}
	}
	return -1
}
