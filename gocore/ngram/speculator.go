package ngram

import "errors"

// observeChunk is how many tokens proposers are told of at once; less than the smallest history ring, so that none is
// gone before they have seen it.
const observeChunk = 512

// Decision is what to do in one step.
type Decision struct {
	// Drafts are the tokens to verify after the last committed one; empty for a plain step. They stay valid until the
	// next Plan or PlanAhead. The caller may cut them short before verifying.
	Drafts []int32
	// Width is the rows of the forward, len(Drafts)+1 or more: the rest is padded with any tokens, whose results are
	// ignored, because the wider pass costs less. It may exceed the limit given; a caller without room for so many
	// rows lowers it, down to len(Drafts)+1, and hands back what it did.
	Width int
	// Reason says why there are no drafts.
	Reason Reason
	// Proposer names the drafts' origin.
	Proposer string
	// Probe says that the step is to time its width.
	Probe bool
	// Lookahead advises a pipelining caller to queue the next plain step before this step's token is read. Always
	// false with drafts.
	Lookahead bool

	seq   uint64
	ahead bool
}

// Speculator serves one request: it is told the text and answers how to go on. Not safe for concurrent use.
type Speculator struct {
	cfg       Config
	shared    *Shared
	history   *History
	proposers []Proposer
	control   *controller
	shadows   []shadow // by proposer
	counts    counts

	seq      uint64 // of the latest decision; 0 is never used
	pending  bool   // its result has not come
	source   int    // its proposer
	depth    int    // and how many drafts
	tokens   [MaxDraft]int32
	settled  bool
	finished bool
}

// New makes the speculator of a request. shared belongs to the loaded model; nil makes one for this request alone.
func New(cfg Config, shared *Shared) (*Speculator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	shared, err := orOwn(cfg, shared)
	if err != nil {
		return nil, err
	}
	tables := newTables(cfg, cfg.MaxBytes/2)
	if !cfg.Adaptive {
		return NewWithProposers(cfg, shared, tables)
	}
	list := []Proposer{newSuffix(cfg), tables}
	if shared.store != nil && cfg.SharedBytes > 0 {
		list = append(list, newSharedProposer(cfg, shared.store))
	}
	return NewWithProposers(cfg, shared, list...)
}

// NewWithProposers is New with other proposers than the built-in ones. With Adaptive false the first that proposes
// anything is used; with EMAThreshold 0 besides, its drafts are verified at every step, as tests want it.
func NewWithProposers(cfg Config, shared *Shared, proposers ...Proposer) (*Speculator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(proposers) == 0 {
		return nil, errors.New("ngram: no proposers")
	}
	shared, err := orOwn(cfg, shared)
	if err != nil {
		return nil, err
	}
	banks := make([]*bank, len(proposers))
	for i, p := range proposers {
		banks[i] = shared.bank(p.Name())
	}
	return &Speculator{
		cfg: cfg, shared: shared, proposers: proposers, shadows: make([]shadow, len(proposers)),
		// Half of the memory is the tables'; the other holds history and suffix index.
		history: NewHistory(max(windowFor(cfg.MaxBytes/2), firstWindow)),
		control: newController(cfg, shared.cost, banks),
	}, nil
}

func orOwn(cfg Config, shared *Shared) (*Shared, error) {
	if shared != nil {
		return shared, nil
	}
	return NewShared(cfg)
}

// Len is the number of tokens observed and not truncated.
func (s *Speculator) Len() int { return s.history.Len() }

// Observe appends tokens to the text: the prompt first, then what each step committed. A long prompt takes time, see
// Prepare.
func (s *Speculator) Observe(tokens ...int32) {
	s.reserve(tokens)
	for len(tokens) > 0 {
		chunk := tokens[:min(len(tokens), observeChunk)]
		tokens = tokens[len(chunk):]
		s.observe(chunk)
	}
}

func (s *Speculator) observe(chunk []int32) {
	for i := range s.shadows {
		s.compare(i, chunk)
	}
	from := s.history.Len()
	s.history.Append(chunk...)
	for _, p := range s.proposers {
		p.Observe(s.history, from)
	}
}

// Plan decides the next step. limit is the most draft tokens that the caller can use now (what max_tokens or the
// cache leave, less the one token that any step gives); 0 or less allows none.
func (s *Speculator) Plan(limit int) Decision { return s.plan(limit, false) }

// PlanAhead is Plan for a step whose plain forward is queued already: it has no drafts. Lookahead is false if drafts
// should follow it, so that the step after it is left to Plan.
func (s *Speculator) PlanAhead(limit int) Decision {
	s.shared.cost.pipeline()
	return s.plan(limit, true)
}

func (s *Speculator) plan(limit int, ahead bool) Decision {
	s.seq++
	s.pending = true
	d := Decision{Width: 1, seq: s.seq, ahead: ahead, Lookahead: true}
	v := s.verdict(min(limit, s.cfg.depth()), ahead)
	switch {
	case v.depth == 0:
		d.Reason = v.reason
	case ahead:
		d.Reason, d.Lookahead = ReasonLookahead, false
	default:
		s.source, s.depth = v.source, v.depth
		d.Drafts, d.Width, d.Probe, d.Lookahead = s.copyDrafts(v.source, v.depth), v.width, v.probe, false
		d.Proposer = s.proposers[v.source].Name()
	}
	return d
}

func (s *Speculator) verdict(limit int, ahead bool) verdict {
	c := s.control
	switch {
	case limit <= 0:
		return verdict{reason: ReasonLimit}
	case c.cooldown > 0:
		return verdict{reason: ReasonCooldown}
	case s.cfg.Paid:
		return s.paid(limit, ahead)
	case !s.cfg.Adaptive:
		return s.plainSpecification(limit)
	}
	if c.gather(s.history, s.proposers, limit) == 0 {
		return verdict{reason: ReasonNoMatch}
	}
	v := c.decide(ahead)
	s.watch(&v, ahead)
	return v
}

// plainSpecification drafts as much as it may whenever the gate is open.
func (s *Speculator) plainSpecification(limit int) verdict {
	c := s.control
	if !c.gate.open() {
		return verdict{reason: ReasonPaused}
	}
	return s.first(limit)
}

// first is the draft of the first that proposes anything.
func (s *Speculator) first(limit int) verdict {
	c := s.control
	for i, p := range s.proposers {
		if n := min(p.Draft(s.history, c.cands[i].drafts[:limit]), limit); n > 0 {
			return verdict{option: option{source: i, depth: n, width: n + 1}}
		}
	}
	return verdict{reason: ReasonNoMatch}
}

// Result tells what became of a decision: how many of d.Drafts were accepted, in how many seconds (see the package's
// description). It is due after every step, plain ones too, before or after Observe.
func (s *Speculator) Result(d Decision, accepted int, seconds float64) {
	drafted := len(d.Drafts)
	accepted = min(max(accepted, 0), drafted)
	width := max(d.Width, drafted+1)
	latest := s.pending && d.seq == s.seq
	s.pending = s.pending && !latest
	s.counts.steps++
	s.counts.tokens += accepted + 1
	if usable(seconds) {
		s.counts.seconds += seconds
	}
	if drafted == 0 {
		s.counts.reason(d.Reason)
		s.shared.cost.recordPlain(seconds, d.ahead, s.cfg.probing())
		s.control.plainStep()
		return
	}
	s.counts.draft(drafted, accepted)
	s.counts.padded += width - drafted - 1
	s.control.draftStep(drafted, accepted, seconds, d.Probe)
	s.bookCost(d, width, accepted, seconds)
	if !latest { // of an older decision only the counts can be told
		return
	}
	n := min(drafted, s.depth)
	src := s.counts.source(d.Proposer)
	src.Steps++
	src.Drafted += drafted
	src.Accepted += accepted
	s.proposers[s.source].Feedback(n, min(accepted, n))
}

func (s *Speculator) bookCost(d Decision, width, accepted int, seconds float64) {
	cost := s.shared.cost
	if s.cfg.Paid {
		return // the seconds are the drafting's too: no pass costs that
	}
	if s.cfg.RecurrentState && accepted < len(d.Drafts) {
		cost.recordPartial(width, seconds, s.cfg.RecomputeCost, s.cfg.probing())
	} else {
		cost.record(width, seconds, s.cfg.probing())
	}
	if d.Probe {
		s.counts.probes++
	}
}

// Truncate cuts the text to its first n tokens; nothing seen from there on is proposed again. n at or beyond the
// length changes nothing, below 0 is 0.
func (s *Speculator) Truncate(n int) {
	n = max(n, 0)
	if n >= s.history.Len() {
		return
	}
	for _, p := range s.proposers {
		p.Truncate(s.history, n)
	}
	s.history.Truncate(n)
	s.pending = false
	for i := range s.shadows {
		s.shadows[i].n = 0
	}
}

// Settle books the counts with the model's totals, once. Nothing may be planned or observed after it.
func (s *Speculator) Settle() {
	if !s.settled {
		s.settled = true
		s.shared.settle(&s.counts)
	}
}

// Finish settles and hands the text to the model's store; later calls do nothing. The speculator must not be used after
// it, except for Stats and Len. Storing a long text takes time (0.2 µs a token): after Settle a caller may leave Finish
// to another goroutine, even while Stats and Len are asked.
func (s *Speculator) Finish() {
	if s.finished {
		return
	}
	s.finished = true
	s.Settle()
	if s.cfg.Adaptive && s.cfg.SharedBytes > 0 {
		s.shared.keep(s.history)
	}
}

// Stats describes the request so far.
func (s *Speculator) Stats() Stats {
	st := Stats{Tokens: s.Len(), Counts: s.counts.stats(), Gate: s.control.gate.stats(), Cost: s.shared.cost.stats(),
		Bytes: s.history.bytes()}
	for _, p := range s.proposers {
		st.Bytes += p.Bytes()
	}
	return st
}
