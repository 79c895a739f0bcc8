// Package ngram proposes draft tokens without a draft model and decides how many of them a step should verify.
//
// Three proposers look for repetition: n-gram tables (contexts of two and three tokens), a suffix matcher over the
// request's own text, and the same matcher over texts of finished requests. A controller turns their confidences into
// calibrated acceptance probabilities and picks the depth that maximises expected committed tokens per measured
// second; no drafts at all is always one of the choices. The package knows neither models nor clocks: the caller says
// which tokens were committed and how many seconds a step took.
//
// # One step
//
//	d := spec.Plan(limit)                   // d.Drafts to verify; empty: a plain step, d.Reason says why
//	…forward over 1+len(d.Drafts) tokens, padded to d.Width rows…
//	spec.Observe(committed...)              // the accepted drafts and the one token after them
//	spec.Result(d, accepted, seconds)       // every step, plain ones too
//
// # What seconds means
//
// Seconds are wall time between the completions of two steps, waits for a slow consumer left out. Plain decoding is
// pipelined (the next step is queued before this step's token is read) and verification is not, so the cost at width 1
// is that of a pipelined plain step: what drafting really competes with. A caller that queues ahead calls PlanAhead
// instead of Plan for a step that is in flight already, and queues the next one only where Decision.Lookahead says so:
// then plain steps stay pipelined, drafting takes a step's notice, and the cost of leaving the pipeline is measured and
// weighed too.
// Seconds that are not positive and finite mean "not measured". Without measured plain steps adaptive mode never
// drafts.
//
// # Why nothing needs probing but cost
//
// Verification accepts a draft exactly when plain decoding would have produced the same token. So when a step is
// plain, the draft that was not used can still be compared with the tokens that follow ("shadow"), and acceptance is
// learned at no cost. Only widths never timed, or timed long ago, call for a real step as a probe. Probes back off and
// draw on a budget (Config.ProbeShare of the time spent), so where drafting cannot pay they cost next to nothing.
package ngram
