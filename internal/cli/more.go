package cli

// moreVerbs lists the verbs between run and the small ones. A new verb adds a
// file of its own and one line here.
func moreVerbs() []verb {
	return []verb{
		doctorVerb(),
		benchVerb(),
		attackVerb(),
	}
}
