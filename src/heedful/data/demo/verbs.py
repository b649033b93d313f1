"""Verbs and prepositions of the demo grammar, as tables that can be checked by eye."""

from typing import Literal, NamedTuple

Case = Literal["nominative", "accusative", "dative"]


class Preposition(NamedTuple):
    """A preposition in both languages, and the kind of noun that may stand behind it."""

    english: str
    german: str
    kind: str


class Slot(NamedTuple):
    """What a verb takes: kinds of nouns, the German case, and prepositions if it needs one."""

    kinds: tuple[str, ...]
    case: Case
    prepositions: tuple[Preposition, ...] = ()


class Verb(NamedTuple):
    """A verb in both languages, with what may be its subject and its objects.

    `second` and `third` are the German forms for *du* and *er*, without the separable `prefix`;
    the others are regular. `traits`: "place" (may stand with where it happens), "with" (may stand
    with a companion), "state" (only the present tense, and no time), "sein" (perfect with *sein*),

    """

    base: str
    third_person: str
    past: str
    prefix: str
    infinitive: str
    second: str
    third: str
    participle: str
    subjects: tuple[str, ...]
    slots: tuple[Slot, ...]
    traits: frozenset[str]


# The same German preposition asks for the dative (where?) or the accusative (where to?).
PREPOSITIONS = {
    "where": (
        Preposition("in", "in", "inside"),
        Preposition("in front of", "vor", "building"),
        Preposition("behind", "hinter", "building"),
        Preposition("under", "unter", "tree"),
    ),
    "into": (Preposition("into", "in", "inside"),),
    "lying": (
        Preposition("on", "auf", "surface"),
        Preposition("under", "unter", "surface"),
        Preposition("in", "in", "container"),
    ),
    "laying": (
        Preposition("on", "auf", "surface"),
        Preposition("under", "unter", "surface"),
        Preposition("into", "in", "container"),
    ),
    "home": (Preposition("in", "in", "home"), Preposition("in", "in", "city")),
    "to": (Preposition("to", "nach", "city"),),
    "for": (Preposition("for", "auf", "person"), Preposition("for", "auf", "vehicle")),
    "of": (Preposition("of", "an", "person"),),
    "with": (Preposition("with", "mit", "person"),),
}

# English base, third person, past | German, a prefix parted by "/", then infinitive, du, er,
# participle | subjects | objects: case:kinds or case:@prepositions | traits
_VERBS = """
sleep, sleeps, slept | schlafen schläfst schläft geschlafen | person animal | | place
work, works, worked | arbeiten arbeitest arbeitet gearbeitet | person | | place with
play, plays, played | spielen spielst spielt gespielt | person | | place with
dance, dances, danced | tanzen tanzt tanzt getanzt | person | | place with
sing, sings, sang | singen singst singt gesungen | person | | place with
laugh, laughs, laughed | lachen lachst lacht gelacht | person | |
get up, gets up, got up | auf/stehen stehst steht aufgestanden | person | | sein
arrive, arrives, arrived | an/kommen kommst kommt angekommen | person | | sein
come back, comes back, came back | zurück/kommen kommst kommt zurückgekommen | person | | sein
buy, buys, bought | kaufen kaufst kauft gekauft | person | acc:goods |
sell, sells, sold | verkaufen verkaufst verkauft verkauft | person | acc:goods |
need, needs, needed | brauchen brauchst braucht gebraucht | person | acc:goods | state
read, reads, read | lesen liest liest gelesen | person | acc:text | place
write, writes, wrote | schreiben schreibst schreibt geschrieben | person | acc:written |
eat, eats, ate | essen isst isst gegessen | person | acc:food,dish | place
drink, drinks, drank | trinken trinkst trinkt getrunken | person | acc:drink | place
cook, cooks, cooked | kochen kochst kocht gekocht | person | acc:cooked |
see, sees, saw | sehen siehst sieht gesehen | person animal | acc:person,animal,thing |
look for, looks for, looked for | suchen suchst sucht gesucht | person | acc:person,animal,thing |
find, finds, found | finden findest findet gefunden | person | acc:animal,thing,text |
forget, forgets, forgot | vergessen vergisst vergisst vergessen | person | acc:portable |
open, opens, opened | auf/machen machst macht aufgemacht | person | acc:opened |
close, closes, closed | zu/machen machst macht zugemacht | person | acc:opened |
repair, repairs, repaired | reparieren reparierst repariert repariert | person | acc:machine |
wash, washes, washed | waschen wäschst wäscht gewaschen | person | acc:clothes,fragile |
clean, cleans, cleaned | putzen putzt putzt geputzt | person | acc:cleaned |
paint, paints, painted | malen malst malt gemalt | person | acc:painted |
invite, invites, invited | ein/laden lädst lädt eingeladen | person | acc:person |
call, calls, called | an/rufen rufst ruft angerufen | person | acc:person |
visit, visits, visited | besuchen besuchst besucht besucht | person | acc:person |
love, loves, loved | lieben liebst liebt geliebt | person | acc:person,animal | state
know, knows, knew | kennen kennst kennt gekannt | person | acc:person | state
have, has, had | haben hast hat gehabt | person | acc:animal,thing | state
help, helps, helped | helfen hilfst hilft geholfen | person | dat:person,animal |
thank, thanks, thanked | danken dankst dankt gedankt | person | dat:person |
answer, answers, answered | antworten antwortest antwortet geantwortet | person | dat:person |
follow, follows, followed | folgen folgst folgt gefolgt | person animal | dat:person,animal | sein
belong to, belongs to, belonged to | gehören gehörst gehört gehört | thing text | dat:person | state
give, gives, gave | geben gibst gibt gegeben | person | dat:person acc:thing,text |
show, shows, showed | zeigen zeigst zeigt gezeigt | person | dat:person acc:thing,text,animal |
send, sends, sent | schicken schickst schickt geschickt | person | dat:person acc:written,portable |
bring, brings, brought | bringen bringst bringt gebracht | person | dat:person acc:food,drink |
wait, waits, waited | warten wartest wartet gewartet | person | acc:@for |
think, thinks, thought | denken denkst denkt gedacht | person | acc:@of |
speak, speaks, spoke | sprechen sprichst spricht gesprochen | person | dat:@with |
go, goes, went | gehen gehst geht gegangen | person | acc:@into | sein
drive, drives, drove | fahren fährst fährt gefahren | person | dat:@to | sein
live, lives, lived | wohnen wohnst wohnt gewohnt | person | dat:@home |
put, puts, put | legen legst legt gelegt | person | acc:portable acc:@laying |
lie, lies, lay | liegen liegst liegt gelegen | portable | dat:@lying | state
"""

# Verbs that are followed by a clause with "dass".
_CLAUSE_VERBS = """
say, says, said | sagen sagst sagt gesagt | person | |
know, knows, knew | wissen weißt weiß gewusst | person | | state
believe, believes, believed | glauben glaubst glaubt geglaubt | person | | state
hope, hopes, hoped | hoffen hoffst hofft gehofft | person | | state
"""

_CASES: dict[str, Case] = {"acc": "accusative", "dat": "dative"}


def _read_slot(text: str) -> Slot:
    case, _, filling = text.partition(":")
    if filling.startswith("@"):
        return Slot((), _CASES[case], PREPOSITIONS[filling[1:]])
    kinds = "thing,food,dish,drink,text" if filling == "goods" else filling
    return Slot(tuple(kinds.split(",")), _CASES[case])


def _read_verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for line in table.strip().splitlines():
        english, german, subjects, slots, traits = (part.strip() for part in line.split("|"))
        base, third_person, past = english.split(", ")
        prefix, _, forms = german.rpartition("/")
        infinitive, second, third, participle = forms.split()
        verbs.append(
            Verb(
                base,
                third_person,
                past,
                prefix,
                infinitive,
                second,
                third,
                participle,
                tuple(subjects.split()),
                tuple(_read_slot(slot) for slot in slots.split()),
                frozenset(traits.split()),
            )
        )
    return tuple(verbs)


VERBS = _read_verbs(_VERBS)
CLAUSE_VERBS = _read_verbs(_CLAUSE_VERBS)
