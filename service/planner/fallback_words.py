"""The word lists and patterns with which the rule-based plan finds facets, intent and mode."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _any_of(*patterns: str) -> re.Pattern[str]:
    """Compile an alternative of patterns, matched at word boundaries."""
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


COLORS = _words(
    "black white red blue green yellow pink purple orange brown gray grey silver gold golden beige navy teal tan ivory "
    "burgundy turquoise khaki olive cream maroon violet magenta lavender mint coral champagne charcoal clear "
    "multicolor camo floral plaid striped chrome bronze nickel pewter terracotta rainbow mauve plum taupe peach aqua lilac "
    "mustard rust indigo"
)
COLOR_MODIFIERS = _words("light dark bright pale hot rose navy sky royal neon matte pastel off army baby brushed polished space hunter")
MATERIALS = _words(
    "leather cotton wool silk linen velvet satin denim canvas polyester nylon fleece suede wood wooden bamboo oak "
    "metal steel aluminum aluminium iron brass copper glass ceramic porcelain plastic silicone rubber vinyl foam paper "
    "cardboard walnut pine mahogany teak birch marble granite stone acrylic titanium tungsten mesh lace flannel felt cashmere chenille rattan wicker"
)
MATERIAL_MODIFIERS = _words("stainless faux genuine real vegan solid tempered memory cast organic brushed carbon")
SIZES = _words("small medium large xs s m l xl xxl xxxl 2xl 3xl 4xl 5xl queen king twin oversized petite")
SIZE_UNITS = _words(
    "inch inches in ft feet foot cm mm m yard yards meter meters oz ounce ounces lb lbs pound pounds kg g gram grams "
    "ml l liter liters gallon gallons quart quarts qt gb tb person people seater"
)
COUNT_UNITS = _words("pack packs count ct piece pieces pcs pc sets pairs")
AUDIENCES = _words(
    "men mens men's man women womens women's woman ladies kids kid kid's kids' children children's child boys boy "
    "boy's girls girl girl's toddler toddlers baby babies infant infants newborn newborns teen teens teenager adult "
    "adults youth unisex"
)
CONDITIONS = _words("used refurbished renewed vintage antique secondhand second-hand original")
OCCASIONS = _words(
    "christmas halloween easter thanksgiving wedding birthday anniversary graduation party valentine's valentines "
    "summer winter fall spring holiday travel camping hiking"
)
FEATURES = _words(
    "wireless bluetooth waterproof portable folding foldable rechargeable electric cordless outdoor indoor organic "
    "solar magnetic reusable disposable insulated inflatable adjustable washable ergonomic lightweight unscented "
    "noise-cancelling gluten-free sugar-free handmade digital automatic"
)
NEGATIONS = _words("not no non without except excluding minus")
LINKS = _words(
    "with for that which who from to of by as on at under over between in and or but when while because if so"
)
ARTICLES = _words("a an the some any my our his her their your its this that these those another")
JOINS = _words("and & plus + also then")
COMPARING = _words("or vs versus to with from than")
GOVERNORS = _words("for with of in on at from by without that which who to as")
SETS = _words("set sets kit combo pack bundle holder rack box bag tray grinder grinders")
# Words before the product that say nothing about it.
FILLERS = _words("hmm um ok okay hi hello hey thanks changed mind wife husband friend wants said put top something anything must preferably want wanted prefer rather instead actually maybe honestly same change switch sorry meant now next version options option ones trust doesn't matter is are bigger smaller only just don't i'd i'm he's she's they're we're really not sure think would like his her pair pairs set new good best great nice cheap really very ones also other kind type sort")
# Words that ask about a product and are not part of its name.
QUESTION_VERBS = _words("compare compared comparison versus vs difference differences better best pros cons side trying decide deciding choose between look buying consider worth need tips advice choosing pick picking should know explain makes goes important fit fits work works come comes use using used go goes last hold holds keep support supports")

_TO_GET = r"(?: to (?:buy|find|get|order|purchase))?"
LEAD_INS = _any_of(
    r"(?:look|search|shop|hunt)(?:ing|ping)?(?: around)? for",
    rf"(?:need|want|(?:would|'d) like){_TO_GET}",
    r"(?:show|find|get|give|buy|recommend|suggest)(?: me)?",
    r"do (?:you|u) (?:have|sell|carry)",
    r"(?:what|how) about",
    r"interested in|selection of|^add",
    r"in the market for",
    r"after",
    r"any",
)
CONVERSATIONAL = re.compile(
    r"\?\s*$"
    r"|^(?:hi|hey|hello|who|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|should|"
    r"has|have|may|might|please|show|find|give|get|tell|help|recommend|suggest|let|looking|searching|buy)\b"
    r"|\b(?:i|i'm|im|i'd|id|i'll|i've|ive|we|we're|my|me|you|please|need|want|wanna|looking for)\b"
)
QUESTION_START = re.compile(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|but|well),? )*(?:is|are|was|were|does|do|did|can|could|will|would|has|have|"
    r"how|what|what's|whats|which|who|where|when|why|should)\b"
)
# A wish for products, though phrased as a question.
WISH = _any_of(
    r"do (?:you|they|u) (?:have|sell|carry|stock)",
    r"(?:can|could|will|would) (?:you|u) (?:please )?(?:find|show|get|give|help|recommend|suggest)",
    r"(?:can|could) i (?:get|find|buy|see|order)",
    r"where can",
    r"i (?:need|want)",
    r"i'm looking",
    r"what(?:'s| is| are) (?:some|a) good",
    r"best (?!reviews)",
    r"(?:recommend|suggest)(?:ations?|ions?)?",
    r"got any",
    r"in stock",
    r"(?:looking|shopping) for",
    r"gift for",
)
FOLLOW_UP = re.compile(
    r"^(?:(?:and|or|but|ok|okay|no|hmm|actually|then|sorry|well|yes|maybe|perhaps|just),? )*(?:(?:what|how) about|in|with|without|"
    r"under|over|below|above|but|and|or|something|anything|any|do (?:you|they) have (?:it|this|that|them|one|any)|have it|"
    r"show me (?:the|ones|some)|make (?:it|that)|only|cheaper|bigger|smaller|larger|instead|for|same|the same|size|from|by|"
    r"switch|change|i(?:'d| would) (?:prefer|rather)|i prefer|is there (?:one|a|something)|could it|it should|it's for|it is for|"
    r"i meant|must be|preferably|not|no|don't|i don't|except|these|those|which|are (?:there|any|they)|can (?:it|you|i))\b"
    r"|\b(?:instead|rather than|only|ones?|please|version)\s*[.!?]?$"
)
REVIEW_QUESTION = _any_of(
    r"reviews?|comfortable|durable|quality|worth|sturdy|noisy|loud|smell|warm",
    r"hold up|last (?:long|a)|long does|(?:any )?good(?: for)?|easy to|work well",
    r"true to size|fits?|run (?:small|large|big)",
)
PRODUCT_REFERENCE = _any_of(r"this|these|it|they|its|the (?:product|item|box|battery|cord|lid|handle|size|color)")

COMPARISON = _any_of(
    r"vs|versus|compared? (?!and contrast)|comparison|side by side|pros and cons|differen(?:ce|t)s?.{0,20}between",
    r"difference to|decide between|choose between|choosing between|torn between|better.{0,60} or|better than (?:that|the|a)",
    r"(?:which|what)(?:'s| is| one| should| would| makes).{0,60} or|.{3,60} or .{2,60}[,?] ?which.*",
    r"(?:is|are) .{3,60} (?:or|and) .{2,40} (?:better|easier|safer|cheaper|healthier)|(?:should|do) (?:i|we) .{3,50} or",
    r"or is .{2,40} better|how (?:does|do) .{2,60} (?:compare|stack up)|instead of buying",
)
# After "vs" these say that a title is meant: "kramer vs kramer dvd".
TITLES = _any_of(
    r"dvds?|blu[- ]?ray|uhd|movies?|film|books?|workbook|paperback|hardcover|comics?|posters?|plush\w*|toys?|shirts?|tee|"
    r"cd|vinyl|costumes?|lego|puzzle|(?:board|card|video) game|game|funko|figures?|soundtrack|xbox one game|season",
)
ADVICE = _any_of(
    r"what (?:should|do|does|would|can) (?:i|we|you|a|an|someone|beginners?|people)\b.{0,40}\b(?:look|consider|need|know|"
    r"start|bring|pack|use|buy|get|wear|take|watch|check)",
    r"(?:how|what) (?:to|do (?:i|you|we)|should (?:i|we|a|an|the)|can i)\b.{0,30}\b(?:choose|pick|select|decide|look for|"
    r"tell|prepare|set up|know|find the right|get into|start|fit|size|throw|introduce)",
    r"how (?:many|much|big|long|large|heavy|tall|thick|high|often|powerful|strong|wide|deep) (?:\w+ ){0,3}(?:do|should|is right|for|can|"
    r"must)(?! (?:the|my|your|it|this)\b)",
    r"(?:what|which) (?:size|kind|type|sort|length|brand|height|weight|wattage|capacity)s? (?:of )?(?:\w+ ){1,3}"
    r"(?:do|should|is|are|for|would|works?)",
    r"which (?:\w+ ){1,3}(?:is|are|for|should|do|does|stays?|lasts?|keeps?|helps?|works?|suits?|would)",
    r"tips|advi[cs]e|buying guide|guide to|worth (?:it|the|buying|having|paying)|(?:what's|what is|whats|what are).{0,12}"
    r"\b(?:trend\w*|popular|in style|in fashion|needed|important|essential|the best way|the right|a good)",
    r"what makes|what goes|what matters|that matter|explain|new to|getting into|get started|where do i (?:start|begin)",
    r"(?:are|is) (?:\w+ ){1,4}(?:necessary|good for|bad for|better for|enough for|safe for|overrated|worth)",
    r"(?:gear|equipment|supplies|tools|things|stuff|essentials).{0,20}\b(?:need|important|required|matter|essential)\w*",
    r"do i (?:really )?need|should i (?:get|buy|replace|use|choose|go)|right (?:size|time|kind)|good time to|how (?:is|are) .{2,40} different",
)
OUT_OF_SCOPE = _any_of(
    r"weather|forecast|will it (?:rain|snow)|going to (?:rain|snow)|joke|translate|meaning of life|horoscope|credit score",
    r"exchange rate|stock (?:price|market)|flight status|capital of|population of|president|prime minister|election",
    r"who (?:won|is|was|wrote|invented|discovered|sang|directed) |when (?:did|was) .{3,}|what year|how (?:far|old|tall) is",
    r"(?:write|compose|draft) (?:me )?(?:a|an|my|the|some)|(?:python|javascript|sql|regex|html|excel formula)\b.*|solve|"
    r"square root|what is \d+|\d+ (?:times|plus|minus|divided)|define|meaning of|synonym|homework|essay|poem",
    r"alarm|(?:set|start) (?:a|an|the) (?:timer|reminder)|remind me|what time is it|what day is|what's the date",
    r"play (?:some |me )?(?:music|jazz|a song|the song|songs|next|rock|my)|sing|(?:next|this|current) song|turn (?:on|off) the",
    r"bank (?:account|balance)|(?:book|reserve|find) (?:us |me )?(?:a |an )?(?:flight|table|hotel|room|taxi|uber|restaurant|ticket)s?",
    r"call me a|order (?:me )?(?:a |some )?(?:pizza|taxi|uber)|flip a coin|roll (?:a|the) di[ce]e?|how do (?:you|i) say",
    r"your name|who (?:made|created) you|are you (?:a |an )?(?:bot|human|robot|real|ai)|you are now|no rules",
    r"(?:ignore|disregard|forget|repeat|reveal|print|show).{0,25}(?:instructions?|system prompt|your prompt|text above|rules)",
    r"(?:landlord|lawsuit|sue|lawyer|visa|taxes|mortgage|loan|divorce|boyfriend|girlfriend|diagnos\w+|symptoms?)",
    r"(?:pipe bomb|make a bomb|explosives?|hack (?:into|my)|steal|counterfeit|meth|poison someone)",
    r"how (?:do|does|can|to) (?:i |you )?(?:cook|bake|fly|lose weight|vote|get (?:rich|a job|a visa))|recipe for|nearest|news",
)
# A whole utterance of these is talk.
TALK = FUNCTION_TALK = _words(
    "hi hello hey heya hiya howdy yo sup greetings good morning afternoon evening night day there thanks thank thx ty "
    "cheers bye goodbye cya later ok okay k cool great awesome perfect nice wonderful amazing lovely fine sweet yes no nope "
    "yeah yep sure got it that's thats that is was all so much very really helpful help for the your you u are how doing "
    "what's up have a weekend one see ya too well i'm im done now appreciate love my friend again lot of lots and be "
    "everything today going not bad just saying welcome pleasure nothing else more been were team guys everyone merry "
    "christmas happy new year holidays take care sorry wow lol haha hmm oh please it's its will do this i"
)
FOREIGN = _words(
    "el los las una unos unas para con sin y del por que donde busco quiero necesito tienen hay niños niñas niño niña hombre "
    "mujer hombres mujeres talla zapatos zapatillas ropa bolsa barato rojo azul negro blanco verde mejor casa cocina mi "
    "le les un une des du pour avec sans et ou où chez je cherche veux avez enfant enfants homme femme hommes femmes taille "
    "chaussures robe pas cher rouge noir blanc vert bleu sac maison cuisine à au aux dans sur moi mon ma "
    "der die das den dem ein eine einen für mit ohne und oder ich suche brauche haben sie kinder herren damen größe schuhe "
    "kleid tasche günstig rot schwarz weiß grün blau küche haus zum zur aus im nicht kind jungen mädchen "
    "il lo gli uno di da con senza e per cerco vorrei avete bambino bambina bambini uomo donna taglia scarpe borsa "
    "rosso nero bianco della delle dei nel casa cucina economico "
    "o os as um uma de do dos das com sem ou em preciso procuro quero criança homem mulher tamanho sapatos tênis "
    "vermelho preto branco minha meu presente de aniversário feminino masculino infantil "
    "het een voor met zonder en of ik zoek kinderen heren dames vrouwen mannen maat schoenen jurk goedkoop rood zwart wit "
    "och eller utan med för till jag söker barn dam herr storlek skor svart röd vit billig "
    "dla bez ze z na i w szukam buty damskie męskie dzieci rozmiar tani czarny"
) - _words("a i as do of o e le das die is en on one la with for in on no so me im and the not at to it y mi con de di lo "
           "per ma z na w all men hay sin los las el del san far os il com sac rot den pas et des uno mon casa au aus sur "
           "kind hat")  # fmt: skip
# What takes back a facet.
_ANY = r"(?:any|all|other|whatever|no matter (?:the|which)|don't care about the|don't care what|forget (?:about )?the|every|which)"
_MATTERS = r"(?:doesn't|does not|isn't|is not|don't|can|could|needn't)\b.{0,12}\b(?:matter|important|be anything)"
LIFTS = {
    facet: re.compile(rf"\b{_ANY} (?:{name})\b|\b(?:{name})s? {_MATTERS}")
    for facet, name in (
        ("color", "colou?rs?"), ("brand", "brands?|makes?"), ("size", "sizes?"), ("material", "materials?|it's made of"),
    )
}  # fmt: skip
ADDED = re.compile(r"^(?:and (?!for|in|size)|also|plus)\b|\b(?:as well|too)\s*$")

_ORDER = r"(?:orders?|purchases?|packages?|parcels?|shipments?|deliver(?:y|ies))"
_CHANGE = r"(?:cancel(?:l?ing|ation)?|chang(?:e|ing)|modif(?:y|ying)|edit(?:ing)?|updat(?:e|ing)|correct(?:ing)?|swap)"
_PROFILE = (
    r"(?:accounts?|profiles?|passwords?|pass ?codes?|pin code|user ?names?|newsletters?|subscriptions?|sign[- ]?up|"
    r"log ?-?in|registration)"
)
_TROUBLE = r"(?:problem|issue|error|trouble)s?"

# Support, whatever kind of thing stands at the end of the question.
STRONG_SUPPORT = _any_of(
    r"(?:my|the|this|an|that|your) (?:order|package|parcel|refund|account|password|delivery|shipment|purchase|payment|invoice)",
    r"(?:return|refund|exchange|send .{0,12}back|cancel|charged|customer service|i (?:bought|ordered|returned))",
    r"(?:shipping|return|privacy|delivery|refund|exchange|cancellation|payment|warranty) (?:policy|options?|methods?|costs?|fees?)",
    r"order (?:status|number|#?\d)|track(?:ing)? (?:number|order|my|package|parcel)|gift card balance|log ?in|sign in",
)
# Tried in order; the first match decides. All other questions are about products.
SUPPORT_INTENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "contact_agent",
        _any_of(
            r"(?:talk|speak|chat|connect|transfer|contact|call|reach)(?:ing)?\b.{0,30}\b(?:human|agent|assistant|person|"
            r"someone|somebody|operator|representative|rep|support)",
            r"(?:live|human|real) (?:agent|person|chat)|your (?:phone number|email address)|call center",
            r"customer (?:service|support|care|assistance)",
        ),
    ),
    (
        "feedback",
        _any_of(
            r"(?<!any )complaints?|complain(?:ing)?|feedback|unacceptable|disappointed|disappointing|(?:terrible|awful|great|"
            r"horrible|worst|excellent|best) (?:service|experience|shop|store|website)|rude|never (?:shop|buy|order)ing",
            r"(?:leave|write|post|submit|send\w*|make) .{0,12}(?:review|comment|opinion|claim|reclamation|suggestion)s?",
            r"(?:third|second|fourth) time .{0,40}(?:driver|order|parcel|package|late|wrong)|suggestion for your",
        ),
    ),
    (
        "returns_refunds",
        _any_of(
            r"(?:refund(?:s|ed|ing)?|reimburse(?:d|ments?)|money back|compensations?|rebates?|restitution)"
            r"(?!.{0,20}\bstatus)",
            r"(?:how|can|could|want to|like to|need to|to|do) (?:do |can )?(?:i |we )?return|return (?:policy|label|window|shipping|it|this|my)",
            r"returning|^returns?$|rma|return (?:an?|the) (?:item|order|gift|product|purchase|package)",
            r"(?:send|sent|give|bring|take|ship) .{0,25}\bback\b|(?:came|arrived|was|is|were) .{0,20}(?:broken|damaged|cracked|"
            r"defective|shattered|torn)|(?:wrong|different) (?:item|size|color|one|product) (?:came|arrived|sent|was)",
            r"(?:sent|got|received|delivered) (?:me )?(?:the|a|an) (?:wrong|medium|small|large|different|broken|damaged)",
            r"exchange (?:it|this|my|an?|the|for|policy)|exchanging|swap (?:it|this|them|my)|replacement (?:for my|if)",
        ),
    ),
    (
        "policy_help",
        _any_of(
            r"(?:termination|cancellation|exit|withdrawal|restocking) (?:fee|charge|penalt)\w*",
            r"payment (?:methods?|options?|modalit\w+)|(?:pay|paying) (?:with|by|using|in)|do you (?:accept|take) (?:paypal|apple|"
            r"visa|amex|cash|checks?|afterpay|klarna|credit)|installments?|afterpay|klarna",
            r"(?:shipping|delivery|shipment) (?:options?|methods?|costs?|fees?|policy|rates?|charges?|times?|take)",
            r"(?:privacy|store|price match|warranty|shipping|exchange) policy|policies|(?:your|the) warranty|warranty (?:policy|claim)",
            r"do you (?:ship|deliver)|ship to|deliver to|how (?:long|much) (?:is|does|do|are) .{0,15}(?:shipping|delivery|i have to)",
            r"price match\w*|(?:store|opening) hours|gift wrap\w*|student discount|loyalty|rewards? (?:points|program)",
        ),
    ),
    (
        "order_change",
        _any_of(
            rf"{_CHANGE}\b.{{0,40}}\b(?:{_ORDER}|items?|(?:delivery|shipping|billing)? ?address)",
            rf"(?:wrong|mistake|forgot|add|remove|another).{{0,40}}\b{_ORDER}|before it ships|cancel it|hold my",
        ),
    ),
    (
        "order_status",
        _any_of(
            rf"(?:track(?:ing)?|where(?:'s| is| are| r)? (?:is )?my|status of|locat\w+ my)\b.{{0,30}}\b(?:{_ORDER}|"
            r"refund|number|stuff|things?|items?)",
            rf"(?:{_ORDER}|refund) status",
            rf"(?:my|the) {_ORDER}\b.{{0,30}}\b(?:arriv\w+|come|coming|late|lost|shipped|delivered|missing)",
            rf"when (?:will|is|does)\b.{{0,30}}\b{_ORDER}",
            r"^track(?:ing)?|says delivered|never (?:got|came|arrived|received)|(?:hasn't|has not|not) (?:arrived|come|shipped)",
            rf"where(?:'s| is| are)? (?:the |my )?(?:{_ORDER}|stuff)|when (?:will|do) (?:it|i|they) (?:arrive|get (?:it|my)|come)",
            r"(?:order|purchase) (?:number )?#?\d{4,}",
        ),
    ),
    (
        "payment_billing",
        _any_of(
            r"invoices?|(?:my|the) bills?|billing|receipts?|charged|double charge",
            rf"payment (?:{_TROUBLE}|failed|declined)",
            rf"{_TROUBLE} (?:with|on|in) .{{0,20}}payments?",
            r"card (?:was |got |is |keeps being )?(?:declined|rejected)|can'?t pay|pay (?:my|for my) (?:bill|order)|(?:promo|coupon|discount|"
            r"voucher) codes?|at checkout|gift card balance|(?:charged|billed|paid) (?:me )?(?:twice|double|wrong|too much)",
        ),
    ),
    (
        "account",
        _any_of(
            r"(?:my|an?|the|new|your|ur|free|premium|platinum|gold|standard|freemium|pro|delete|create|open|close)\b.{0,20}"
            rf"\b{_PROFILE}",
            rf"(?:forgot|reset|recover|restore|retrieve|lost)\b.{{0,20}}\b{_PROFILE}",
            rf"{_PROFILE} (?:{_TROUBLE}|settings|help)",
            r"^(?:log ?in|sign ?in|sign ?up)",
            r"(?:un)?subscrib\w+|(?:marketing|promotional|promo|your|spam) e?-?mails|stop (?:sending|emailing|texting)",
            r"(?:set up|add|enter\w*|submit\w*)\b.{0,20}\b(?:delivery|shipping) address",
        ),
    ),
)
