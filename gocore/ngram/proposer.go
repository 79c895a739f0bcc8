package ngram

// Draft is one proposed token.
type Draft struct {
	Token int32
	// P is the proposer's estimate that the token is accepted, given that all before it were. It need not be
	// calibrated, only ordered: the controller learns what each level of it is worth.
	P float32
}

// Proposer guesses how a text goes on. One proposer serves one request and is called from one goroutine.
// A new one needs nothing but these methods, and a place in the list given to NewWithProposers.
type Proposer interface {
	// Name identifies the kind of proposer: statistics and what is learned of its confidence go by it.
	Name() string
	// Observe is told after h grew: positions from ≤ i < h.Len() are new and all held.
	Observe(h *History, from int)
	// Draft fills dst with a continuation of h, the next token first, and returns how many tokens it gives.
	Draft(h *History, dst []Draft) int
	// Feedback tells of the last Draft: its first proposed tokens were verified and the first accepted of those were
	// right. Observe may have been called in between.
	Feedback(proposed, accepted int)
	// Truncate is told before h is cut to n < h.Len() tokens: nothing seen from there on may be used again.
	Truncate(h *History, n int)
	// Bytes is the memory held.
	Bytes() int
}
