"""Nouns and adjectives of the demo grammar, as tables that can be checked by eye.

Every English form has one German form and the other way round, so that a sentence built from them
has one right translation in each direction. Two words that would share a translation (*clever* and
*smart*) are never both here, nor are words whose plural looks like their singular in English
(*sheep*), or whose spelling differs between British and American English.
"""

from typing import Literal, NamedTuple

Gender = Literal["m", "f", "n"]


class Noun(NamedTuple):
    """A noun in both languages.

    `plural` and `german_plural` are empty for what is not counted (milk). `weak` is what a weak
    masculine noun takes in every case but the nominative singular (der Junge, den Jungen).
    """

    kinds: frozenset[str]
    english: str
    plural: str
    gender: Gender
    german: str
    german_plural: str
    weak: str


class Adjective(NamedTuple):
    """An adjective: `stem` is what the German endings are put on (müde, ein müd-er Mann).

    `passing` tells what may hold today and not tomorrow.
    """

    kinds: frozenset[str]
    english: str
    german: str
    stem: str
    passing: bool


# kinds | English singular and plural | gender, German singular and plural, weak ending
_NOUNS = """
person man men m Mann Männer
person woman women f Frau Frauen
person child children n Kind Kinder
person boy boys m Junge Jungen -n
person girl girls n Mädchen Mädchen
person teacher teachers m Lehrer Lehrer
person doctor doctors m Arzt Ärzte
person friend friends m Freund Freunde
person farmer farmers m Bauer Bauern -n
person student students m Student Studenten -en
person brother brothers m Bruder Brüder
person sister sisters f Schwester Schwestern
person,parent mother mothers f Mutter Mütter
person,parent father fathers m Vater Väter
person king kings m König Könige
person queen queens f Königin Königinnen
person daughter daughters f Tochter Töchter
person son sons m Sohn Söhne
animal dog dogs m Hund Hunde
animal cat cats f Katze Katzen
animal,painted horse horses n Pferd Pferde
animal,painted bird birds m Vogel Vögel
animal mouse mice f Maus Mäuse
food apple apples m Apfel Äpfel
food,cooked egg eggs n Ei Eier
food,cooked potato potatoes f Kartoffel Kartoffeln
food tomato tomatoes f Tomate Tomaten
food cake cakes m Kuchen Kuchen
food orange oranges f Orange Orangen
dish bread - n Brot -
dish cheese - m Käse -
dish,cooked rice - m Reis -
dish,cooked meat - n Fleisch -
dish,cooked soup - f Suppe -
drink water - n Wasser -
drink milk - f Milch -
drink coffee - m Kaffee -
drink tea - m Tee -
text,written,portable book books n Buch Bücher
text,written,portable letter letters m Brief Briefe
text,portable newspaper newspapers f Zeitung Zeitungen
text,written novel novels m Roman Romane
text,written story stories f Geschichte Geschichten
thing,machine car cars n Auto Autos
thing,machine bicycle bicycles n Fahrrad Fahrräder
thing,machine,cleaned lamp lamps f Lampe Lampen
thing,clothes,portable hat hats m Hut Hüte
thing,clothes,portable coat coats m Mantel Mäntel
thing,clothes,portable dress dresses n Kleid Kleider
thing,clothes,portable shirt shirts n Hemd Hemden
thing,cleaned shoe shoes m Schuh Schuhe
thing,machine clock clocks f Uhr Uhren
thing,portable key keys m Schlüssel Schlüssel
thing,portable knife knives n Messer Messer
thing,fragile glass glasses n Glas Gläser
thing,fragile,opened bottle bottles f Flasche Flaschen
thing,painted,portable picture pictures n Bild Bilder
thing,painted flower flowers f Blume Blumen
thing ball balls m Ball Bälle
thing,machine computer computers m Computer Computer
thing,container,opened box boxes f Schachtel Schachteln
thing,container,opened bag bags f Tasche Taschen
thing,surface,cleaned table tables m Tisch Tische
thing,surface chair chairs m Stuhl Stühle
fixture,opened,cleaned window windows n Fenster Fenster
fixture,opened,cleaned door doors f Tür Türen
vehicle bus buses m Bus Busse
vehicle train trains m Zug Züge
place,inside garden gardens m Garten Gärten
place,inside,home,building,painted house houses n Haus Häuser
place,inside,cleaned kitchen kitchens f Küche Küchen
place,inside,building school schools f Schule Schulen
place,inside park parks m Park Parks
place,inside,home city cities f Stadt Städte
place,inside,home forest forests m Wald Wälder
place,inside,home,cleaned room rooms n Zimmer Zimmer
place,inside office offices n Büro Büros
place,inside,building church churches f Kirche Kirchen
tree,painted tree trees m Baum Bäume
"""

# kinds of nouns | English | German | stem where it differs
_ADJECTIVES = """
person,animal,thing,text,place,fixture,tree old alt
person,animal young jung
person friendly freundlich
person clever klug
person,animal tired müde müd
person happy glücklich
person,animal sick krank
person,animal strong stark
person famous berühmt
animal hungry hungrig
animal,food,thing,place,fixture,tree big groß
animal,food,thing,place,fixture,tree small klein
thing,text,fixture,vehicle new neu
thing,fixture,vehicle red rot
thing,fixture,vehicle blue blau
thing,fixture,vehicle green grün
animal,thing,fixture,vehicle white weiß
thing,food,dish expensive teuer teur
thing,food,dish cheap billig
place,thing,tree beautiful schön
machine,fragile,fixture broken kaputt
fragile,container,vehicle empty leer
food,dish,drink fresh frisch
dish,drink cold kalt
dish,drink warm warm
text interesting interessant
text boring langweilig
text long lang
text short kurz
"""

_PASSING = frozenset(
    ("tired", "happy", "sick", "hungry", "broken", "empty", "cold", "warm", "expensive", "cheap")
)


_GENDERS: dict[str, Gender] = {"m": "m", "f": "f", "n": "n"}


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def _read_nouns(table: str) -> tuple[Noun, ...]:
    nouns = []
    for line in table.strip().splitlines():
        kinds, english, plural, gender, german, german_plural, *weak = line.split()
        nouns.append(
            Noun(
                _kinds(kinds),
                english,
                plural.strip("-"),
                _GENDERS[gender],
                german,
                german_plural.strip("-"),
                weak[0].strip("-") if weak else "",
            )
        )
    return tuple(nouns)


def _read_adjectives(table: str) -> tuple[Adjective, ...]:
    adjectives = []
    for line in table.strip().splitlines():
        kinds, english, german, *stem = line.split()
        adjectives.append(
            Adjective(
                _kinds(kinds),
                english,
                german,
                stem[0] if stem else german,
                english in _PASSING,
            )
        )
    return tuple(adjectives)


NOUNS = _read_nouns(_NOUNS)
ADJECTIVES = _read_adjectives(_ADJECTIVES)
