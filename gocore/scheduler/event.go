package scheduler

import "fmt"

// Kind says what an event tells.
type Kind uint8

// The kinds of events, with the fields of Event that each uses.
const (
	// Define introduces Class, a loaded model, or, while it has no requests, changes
	// it. A request's cache takes Bytes a token in layers that keep all, WindowBytes
	// a token in layers that keep the last Window, and StateBytes whatever its
	// length. While it grows, GrowBytes a token are taken on top for a moment: the
	// copy of one layer. Width is the most tokens of a request in one pass (0: 1);
	// Solo is for requests that cannot share a pass.
	Define Kind = iota + 1
	// Admit enters request ID of Class with N prompt tokens, of which Reused
	// are hoped to be kept, and at most Max tokens to come (Unlimited: no limit).
	// Step bounds its prefill chunks (0: Config.PrefillStep). It starts without
	// credit.
	Admit
	// Reused tells that the cache of request ID begins with N kept tokens, fewer
	// than it has in all. Before it joins, that is what is hoped for.
	Reused
	// Credit lets request ID run N tokens further ahead of its reader; Rest, at the
	// end, takes what is left of that back.
	Credit
	// Drafts replaces what request ID can verify next: Odds[i] is the chance, in
	// millionths, that drafts 0 … i are all accepted. Alone in a pass, the first N
	// are taken, in a pass padded to Width tokens; with others the number is chosen
	// jointly, at least N with Force. Committed clears them.
	Drafts
	// Prefilled tells that N tokens entered the cache of request ID.
	Prefilled
	// Committed tells that N tokens of request ID became final, one for the pass
	// and the rest Accepted drafts.
	Committed
	// Retract takes the last N committed tokens of request ID back, with their
	// credit.
	Retract
	// Cost tells that a pass of Class with N rows and Tokens in all, padding
	// included, took Nanos.
	Cost
	// Park sets request ID aside: it is not planned, and its memory goes first.
	Park
	// Resume ends Park.
	Resume
	// Cancel, Fail and Finish end request ID.
	Cancel
	Fail
	Finish
	// Memory sets the budget to Bytes.
	Memory
	// Kept tells that kept prefixes take Bytes of the budget now.
	Kept
	// Rest takes the credit of request ID back: nobody waits for it.
	Rest
)

// Unlimited is the Max of a request without a limit.
const Unlimited = -1

// Event is something that happened. Which fields count depends on Kind.
type Event struct {
	Kind        Kind
	ID          uint64
	Class       uint32
	N           int
	Max         int
	Reused      int
	Accepted    int
	Step        int
	Width       int
	Window      int
	Tokens      int
	Bytes       int64
	WindowBytes int64
	StateBytes  int64
	GrowBytes   int64
	Nanos       int64
	Odds        []uint32
	Solo        bool
	Force       bool
}

// Limits of what events may say; they keep all sums far from overflow.
const (
	MaxTokens     = 1 << 24 // of a request
	MaxWidth      = 32      // tokens of a request in one pass
	MaxTokenBytes = 1 << 26
	MaxStateBytes = 1 << 36
	MaxBudget     = 1 << 60
	million       = 1_000_000
	maxRows       = 1 << 10
	maxCredit     = 1 << 30
	maxNanos      = 1 << 42 // over an hour
)

func within[T int | int64](name string, v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%w: %s %d is not in %d … %d", ErrValue, name, v, low, high)
	}
	return nil
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
