package ngram

import "context"

// reserveFrom is how many tokens shown at once are worth making room for beforehand.
const reserveFrom = 2 * observeChunk

// Prepare makes the speculator of a request whose text begins with the given parts, one after the other: New and
// Observe in one, to be called where a long prompt holds nobody up. Indexing takes about half a microsecond a token.
//
// It may run on any goroutine, and on several for one shared at once. The speculator belongs to the caller until it
// hands it over, by sending it on a channel or under a lock; from then on it is the receiver's, as one from New is, and
// the caller must not touch it any more. Nothing in it is locked for that: Plan, Observe and Result take no lock but
// those of shared, which they took before.
//
// cfg must be the one the request runs with, ForRecurrent applied where the model needs it. What was indexed too much
// Truncate takes back; what is missing at the end Observe adds. parts are not kept.
//
// ctx ends the work between chunks of 512 tokens; then its error comes back.
func Prepare(ctx context.Context, cfg Config, shared *Shared, parts ...[]int32) (*Speculator, error) {
	s, err := New(cfg, shared)
	if err != nil {
		return nil, err
	}
	for _, tokens := range parts {
		s.reserve(tokens)
		for len(tokens) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			chunk := tokens[:min(len(tokens), observeChunk)]
			tokens = tokens[len(chunk):]
			s.observe(chunk)
		}
	}
	return s, nil
}

// reserve makes room for many tokens at once.
func (s *Speculator) reserve(tokens []int32) {
	if len(tokens) < reserveFrom {
		return
	}
	s.history.reserve(len(tokens))
	for _, p := range s.proposers {
		// Not by an interface: then what Observe is given would escape to the heap, at every step.
		if t, ok := p.(*tablesProposer); ok {
			t.reserve(s.history, tokens)
		}
	}
}
