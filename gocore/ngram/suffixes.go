package ngram

// Names of the suffix matchers.
const (
	NameSuffix = "suffix" // over the request's own text
	NameShared = "shared" // over texts of finished requests
)

const bytesPerPosition = 20 // a token in the history, two heads and two links

// suffixProposer continues long repeats within the request's own text.
type suffixProposer struct {
	index suffixIndex
	m     matcher
	rules followRules
}

func newSuffix(cfg Config) *suffixProposer {
	return &suffixProposer{rules: cfg.rules(true)}
}

func (c Config) rules(loop bool) followRules {
	return followRules{support: c.MinSupport, factor: min(c.MatchFactor, MaxDraft), bound: c.bound(), loop: loop}
}

func (p *suffixProposer) Name() string { return NameSuffix }

func (p *suffixProposer) Observe(h *History, from int) { p.index.observe(h, from) }

func (p *suffixProposer) Draft(h *History, dst []Draft) int {
	found, longest := p.index.search(h, &p.m, h.Tail(p.m.tail[:]))
	return p.m.follow(h, found, longest, dst, p.rules)
}

// Feedback does nothing: what the lengths and shares of matches are worth is learned by the controller.
func (p *suffixProposer) Feedback(proposed, accepted int) {}

func (p *suffixProposer) Truncate(h *History, n int) { p.index.truncate(h, n) }

func (p *suffixProposer) Bytes() int { return p.index.bytes() }

// sharedProposer continues repeats of texts of finished requests.
type sharedProposer struct {
	store *store
	m     matcher
	rules followRules
}

func newSharedProposer(cfg Config, s *store) *sharedProposer {
	return &sharedProposer{store: s, rules: cfg.rules(false)}
}

func (p *sharedProposer) Name() string { return NameShared }

func (p *sharedProposer) Observe(h *History, from int) {}

func (p *sharedProposer) Draft(h *History, dst []Draft) int {
	return p.store.draft(&p.m, h.Tail(p.m.tail[:]), dst, p.rules)
}

func (p *sharedProposer) Feedback(proposed, accepted int) {}

func (p *sharedProposer) Truncate(h *History, n int) {}

// Bytes is 0: the store belongs to the model, not to the request.
func (p *sharedProposer) Bytes() int { return 0 }
