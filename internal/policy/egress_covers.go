package policy

import "github.com/bermhq/berm/api"

// Covers says whether everything that inner allows is allowed by e, too. It may
// say no where that is hard to tell, and never yes where it is not so.
func (e *Egress) Covers(inner *Egress) Decision {
	if inner == nil || len(inner.Rules) == 0 {
		return Decision{Allow: true, Rule: -1}
	}
	return Decision{Rule: 0, Reason: DenyNoRule, Text: "not built yet"}
}

// EgressCeiling says whether a document lies within the ceiling of a token. A
// nil ceiling says nothing; a nil document is no link.
func EgressCeiling(req, ceiling *Egress) Verdict {
	if ceiling == nil || req == nil {
		return Verdict{Allow: true, Rule: "ceiling.egress"}
	}
	d := ceiling.Covers(req)
	if d.Allow {
		return Verdict{Allow: true, Rule: "ceiling.egress"}
	}
	return refuse(api.CodePolicyCeiling, "ceiling.egress", "egress: this token may not have all of that: "+d.Text, "leave that rule out, or use a token with a higher ceiling")
}
