"""Questions of our own with what their closed phrases say: `question | facts | search text`.

Facts are parted by ";": `max 50 USD`, `min 20`, `20-40 EUR`, `stars 4`, `sort newest`, `offers in_stock on_sale`,
`not nike, puma`, `lift price`; nothing where nothing closed is said. The search text is what `without` leaves; `~`
where that is not this row's matter.
"""

UPPER_BOUNDS = """
shoes under $50 | max 50 USD | shoes
shoes under 50 dollars | max 50 USD | shoes
winter gloves below 25 | max 25 | winter gloves
hair dryer less than 60 | max 60 | hair dryer
a toaster cheaper than 40 euros | max 40 EUR | a toaster
garden hose up to 35 bucks | max 35 USD | garden hose
tool chest upto 300 | max 300 | tool chest
rice cooker at most 45 dollars | max 45 USD | rice cooker
no more than 80 for a car battery charger | max 80 | car battery charger
not more than twenty dollars, wrapping paper | max 20 USD | wrapping paper
vacuum not over 150 | max 150 | vacuum
nothing over 90, patio umbrella | max 90 | patio umbrella
nothing above $75 please, office lamp | max 75 USD | office lamp
max 500 laptop | max 500 | laptop
max 1.5k laptop | max 1500 | laptop
laptop 1.5k max | max 1500 | laptop
electric scooter maximum 600 | max 600 | electric scooter
e-bike for a maximum of 2000 euros | max 2000 EUR | e-bike
waffle iron with a max of $30 | max 30 USD | waffle iron
sub $200 air fryer | max 200 USD | air fryer
sub-$100 keyboard | max 100 USD | keyboard
sub 50 watches | max 50 | watches
headset <$80 | max 80 USD | headset
headset < 80 | max 80 | headset
blender 50 or less | max 50 | blender
blender fifty dollars or less | max 50 USD | blender
wok, 30 or under | max 30 | wok
wok 30 bucks or cheaper | max 30 USD | wok
sleeping bag 120 tops | max 120 | sleeping bag
curtain rod 25 dollars max | max 25 USD | curtain rod
piano bench $90 maximum | max 90 USD | piano bench
drum kit at most 400 | max 400 | drum kit
crock pot 60 dollar budget | max 60 USD | crock pot
budget 200 for a printer | max 200 | printer
my budget is 350, need a futon | max 350 | futon
my budget is $350, need a futon | max 350 USD | futon
with a budget of 75 euros find me a fountain pen | max 75 EUR | fountain pen
budget: 40. wool blanket | max 40 | wool blanket
i have 60 bucks to spend on a skateboard | max 60 USD | skateboard
i only have 25 dollars, need a phone mount | max 25 USD | phone mount
i've got 500 to spend on a grill | max 500 | grill
i can spend 90 on sunglasses | max 90 | sunglasses
i can go up to 220 for a stand mixer | max 220 | stand mixer
don't want to spend more than 40 on a lunch bag | max 40 | lunch bag
i don't want to pay more than $15, reading glasses | max 15 USD | reading glasses
can't spend over 100 on a crib mattress | max 100 | crib mattress
i won't pay more than 70 for jeans | max 70 | jeans
i'm willing to pay 300 for a good chef knife | max 300 | good chef knife
shower curtain that costs less than 30 | max 30 | shower curtain
shower curtain costing under 30 dollars | max 30 USD | shower curtain
ukulele priced under 100 | max 100 | ukulele
bar stools under a price of 80 | max 80 | bar stools
bar stools max price 80 | max 80 | bar stools
bar stools, price limit 80 | max 80 | bar stools
bar stools price under 80 | max 80 | bar stools
under 20 toys for toddlers | max 20 | toys for toddlers
under 15 dollars stocking stuffers | max 15 USD | stocking stuffers
gifts for mom under 50 | max 50 | gifts for mom
shoes for women under 60 | max 60 | shoes for women
toys for kids under 20 | max 20 | toys for kids
$10 candles | max 10 USD | candles
candles for 10 dollars | max 10 USD | candles
thirty dollar watch | max 30 USD | watch
a hundred dollar watch | max 100 USD | watch
rug under two hundred | max 200 | rug
rug under one thousand two hundred dollars | max 1200 USD | rug
rug under a grand | max 1000 | rug
rug for less than a couple hundred bucks | max 200 USD | rug
couch under 2 grand | max 2000 | couch
couch under 1,299.99 | max 1299.99 | couch
couch under $1.2k | max 1200 USD | couch
couch less than 1k | max 1000 | couch
earrings under about 40 | max 40 | earrings
earrings for no more than around 40 dollars | max 40 USD | earrings
cheap router less then 50 | max 50 | cheap router
desk fan at or below $25 | max 25 USD | desk fan
coffee maker under 35 in black | max 35 | coffee maker in black
coffee maker under 35 with timer | max 35 | coffee maker with timer
need a humidifier, 45 max please | max 45 | humidifier
mattress topper keep it under 120 | max 120 | mattress topper
mattress topper, i'm trying to stay under 120 dollars | max 120 USD | mattress topper
baby bathtub under 30 each | max 30 | baby bathtub
pillowcases under 20 a pair | max 20 | pillowcases
ski goggles capped at 85 | max 85 | ski goggles
do you have a dehumidifier for under 180 bucks? | max 180 USD | dehumidifier
is there a decent tripod under 40? | max 40 | decent tripod
what's the best dash cam under 100 | max 100 | best dash cam
SMART LOCK UNDER 150 DOLLARS | max 150 USD | SMART LOCK
Smart lock Under £150 | max 150 GBP | Smart lock
my budget for a beginner ukulele is $60 | max 60 USD | beginner ukulele
what can i get for 20 dollars | max 20 USD | 
"""

LOWER_BOUNDS = """
watches over $500 | min 500 USD | watches
watches above 500 | min 500 | watches
watches more than 500 dollars | min 500 USD | watches
watches at least 500 | min 500 | watches
handbag no less than 200 | min 200 | handbag
handbag not under 200 dollars | min 200 USD | handbag
nothing under 100, whisky | min 100 | whisky
whisky starting at $60 | min 60 USD | whisky
whisky starting from 60 euros | min 60 EUR | whisky
whisky minimum 60 | min 60 | whisky
whisky $60 and up | min 60 USD | whisky
whisky $60+ | min 60 USD | whisky
whisky 60 dollars or more | min 60 USD | whisky
whisky 150 or more | min 150 | whisky
whisky $60 minimum | min 60 USD | whisky
whisky from $60 | min 60 USD | whisky
chandelier upwards of 400 | min 400 | chandelier
chandelier north of 400 dollars | min 400 USD | chandelier
chandelier pricier than 400 | min 400 | chandelier
chandelier > 400 | min 400 | chandelier
ring worth over 2k | min 2000 | ~
"""

RANGES = """
lamp between 15 and 37 | 15-37 | lamp
lamp between 37 and 15 bucks | 15-37 USD | lamp
lamp between $15 and $37 | 15-37 USD | lamp
lamp $15-$37 | 15-37 USD | lamp
lamp $15 - $37 | 15-37 USD | lamp
lamp $15–37 | 15-37 USD | lamp
lamp 15-37$ | 15-37 USD | lamp
lamp 15€ to 37€ | 15-37 EUR | lamp
lamp from 15 to 37 dollars | 15-37 USD | lamp
tv from 300 to 500 | 300-500 | tv
tv 300 to 500 | 300-500 | tv
tv 300-500 | 300-500 | tv
55 inch tv $300 to $500 | 300-500 USD | 55 inch tv
$300 to $500 55 inch tv | 300-500 USD | 55 inch tv
tv anywhere from 300 to 500 bucks | 300-500 USD | tv
tv in the range of 300 to 500 | 300-500 | tv
tv price range 300-500 | 300-500 | tv
tv, budget 300-500 | 300-500 | tv
tv 300-500 usd | 300-500 USD | tv
tv between three hundred and five hundred | 300-500 | tv
tv between 1k and 2k | 1000-2000 | tv
tv $1-2k | 1000-2000 USD | ~
tv over 300 but under 500 | 300-500 | tv
tv at least 300, no more than 500 | 300-500 | tv
tv min 300 max 500 | 300-500 | tv
tv under 500 but over 300 | 300-500 | tv
tv more than 300 dollars and less than 500 dollars | 300-500 USD | tv
tv minimum price 300 maximum price 500 | 300-500 | tv
fifteen to thirty dollar scarf | 15-30 USD | scarf
desk between 80 to 120 dollars with drawers | 80-120 USD | desk with drawers
i was thinking between 40 and 60 for a picture frame | 40-60 | picture frame
"""

AROUND = """
sofa around 800 | 640-960 | sofa
sofa around $800 | 640-960 USD | sofa
sofa about 800 bucks | 640-960 USD | sofa
sofa roughly 800 | 640-960 | sofa
sofa approximately 800 euros | 640-960 EUR | sofa
sofa for about 1k | 800-1200 | sofa
sofa somewhere around 800 | 640-960 | sofa
sofa in the neighborhood of 800 dollars | 640-960 USD | sofa
sofa 800 or so | 640-960 | sofa
sofa $800 or so | 640-960 USD | sofa
sofa ~800 | 640-960 | sofa
sofa ~$800 | 640-960 USD | sofa
sofa 800 dollars give or take | 640-960 USD | sofa
sofa, budget around 800 | 640-960 | sofa
sofa, i want to spend about 800 | 640-960 | sofa
sofa circa £800 | 640-960 GBP | sofa
sofa around fifty bucks | 40-60 USD | sofa
sofa like 50 bucks | 40-60 USD | sofa
sofa close to 800 dollars | 640-960 USD | sofa
"""

CURRENCIES = """
kettle under £20 | max 20 GBP | kettle
kettle under 20 quid | max 20 GBP | kettle
kettle under 20 gbp | max 20 GBP | kettle
kettle under 20gbp | max 20 GBP | kettle
kettle under €20 | max 20 EUR | kettle
kettle under 20€ | max 20 EUR | kettle
kettle under 20 euro | max 20 EUR | kettle
kettle under EUR 20 | max 20 EUR | kettle
kettle under ¥2000 | max 2000 JPY | kettle
kettle under 2000 yen | max 2000 JPY | kettle
kettle under ₹900 | max 900 INR | kettle
kettle under rs 900 | max 900 INR | kettle
kettle under rs. 900 | max 900 INR | kettle
kettle under 900 rupees | max 900 INR | kettle
kettle under C$40 | max 40 CAD | kettle
kettle under CA$40 | max 40 CAD | kettle
kettle under 40 cad | max 40 CAD | kettle
kettle under 40 canadian dollars | max 40 CAD | kettle
kettle under A$40 | max 40 AUD | kettle
kettle under AUD 40 | max 40 AUD | kettle
kettle under 40 australian dollars | max 40 AUD | kettle
kettle under NZ$40 | max 40 NZD | kettle
kettle under US$40 | max 40 USD | kettle
kettle under 40 us dollars | max 40 USD | kettle
kettle under 40 chf | max 40 CHF | kettle
kettle under 40 francs | max 40 CHF | kettle
kettle under 300 sek | max 300 SEK | kettle
kettle under 100 zł | max 100 PLN | kettle
kettle under R$100 | max 100 BRL | kettle
kettle under ₩30000 | max 30000 KRW | kettle
kettle under 40 | max 40 | kettle
kettle cheaper than 29.99 pounds | max 29.99 GBP | kettle
"""

NO_PRICE = """
knife under 5 inches | | knife under 5 inches
weights over 50 pounds | | weights over 50 pounds
stroller under 20 lbs | | stroller under 20 lbs
toys for 3-5 years | | toys for 3-5 years
lego for 8 year old | | lego for 8 year old
puzzles for ages 6 to 10 | | puzzles for ages 6 to 10
shoes from 1990 | | shoes from 1990
brakes for 2012-2016 ford focus | | brakes for 2012-2016 ford focus
iphone 11 max case | | iphone 11 max case
nike air max 90 | | nike air max 90
mad max 2 blu ray | | mad max 2 blu ray
size 10 shoes | | size 10 shoes
size between 8 and 10 dresses | | ~
12 pack of seltzer | | 12 pack of seltzer
rtx 4090 | | rtx 4090
24x36 poster frame | | 24x36 poster frame
24 x 36 frame | | 24 x 36 frame
3/4 inch plywood | | 3/4 inch plywood
spf 50+ sunscreen | | spf 50+ sunscreen
sunscreen over spf 30 | | ~
vitamins for women over 40 | | vitamins for women over 40
moisturizer for men over 50 | | moisturizer for men over 50
toys for kids under 3 | | toys for kids under 3
books for children under 5 | | books for children under 5
games for 12 and up | | games for 12 and up
games ages 8+ | | games ages 8+
50 cent poster | | 50 cent poster
100% linen shirt | | 100% linen shirt
at least 80% cotton tee | | at least 80% cotton tee
tv between 40 and 50 inches | | tv between 40 and 50 inches
headlamp at least 300 lumens | | headlamp at least 300 lumens
jigsaw with over 1000 pieces | | jigsaw with over 1000 pieces
backpack with at least 4 pockets | | backpack with at least 4 pockets
tent for up to 6 people | | tent for up to 6 people
wagon that holds up to 300 pounds | | wagon that holds up to 300 pounds
laptop with more than 16 gb of ram | | laptop with more than 16 gb of ram
change quantity from 1 to 3 | | ~
duvet at most 20 queen | max 20 | duvet queen
dog bed nothing over 48 washable | max 48 | dog bed washable
coffee beans 37 or under dark roast | max 37 | coffee beans dark roast
charger with at least 4 ports | | charger with at least 4 ports
what size if i'm between 8 and 9 | | ~
a 1.5 pound bag of trail mix | | a 1.5 pound bag of trail mix
fleece throw about 50” x 40” | | fleece throw about 50” x 40”
laptop with at least 16gb ram | | laptop with at least 16gb ram
drill 18v | | drill 18v
usb cable up to 10 feet | | usb cable up to 10 feet
rug about 8 feet long | | rug about 8 feet long
book about 1944 | | book about 1944
movies about 1969 | | movies about 1969
under armour shorts | | under armour shorts
under desk treadmill | | under desk treadmill
over the door hooks | | over the door hooks
over ear headphones | | over ear headphones
up to date atlas | | up to date atlas
maximum strength cough syrup | | maximum strength cough syrup
pepsi max 24 cans | | pepsi max 24 cans
around the world in 80 days | | around the world in 80 days
80 thread count cheesecloth | | 80 thread count cheesecloth
no 2 pencils 72 count | | no 2 pencils 72 count
chanel no 5 | | chanel no 5
catch 22 | | catch 22
fahrenheit 451 | | fahrenheit 451
the 100 season 2 dvd | | the 100 season 2 dvd
wd-40 | | wd-40
5 in 1 multi tool | | 5 in 1 multi tool
between 8 and 12 quart stock pot | | between 8 and 12 quart stock pot
two person kayak | | two person kayak
one piece swimsuit | | one piece swimsuit
twelve string guitar | | twelve string guitar
$50 gift card | | $50 gift card
50 dollar amazon gift card | | 50 dollar amazon gift card
fake 100 dollar bills | | fake 100 dollar bills
mens sneakers us 9 | | mens sneakers us 9
sneakers eur 42 | | sneakers eur 42
4k tv | | 4k tv
1k ohm potentiometer | | 1k ohm potentiometer
2k webcam | | 2k webcam
925 sterling silver chain | | 925 sterling silver chain
grand piano cover | | grand piano cover
fire tv stick 4k max | | fire tv stick 4k max
hulu gift card $50 | | hulu gift card $50
10k gold chain | | 10k gold chain
sandpaper 100-400 grit | | sandpaper 100-400 grit
rifle scope 100-300 yards | | rifle scope 100-300 yards
resistance bands 10 to 50 lbs | | resistance bands 10 to 50 lbs
30-day planner | | 30-day planner
order 44512 where is it | | order 44512 where is it
3 to 6 month baby clothes | | 3 to 6 month baby clothes
less than 3 ingredients dog treats | | less than 3 ingredients dog treats
dresser with 6 or more drawers | | dresser with 6 or more drawers
light bulbs 60 watt or less | | light bulbs 60 watt or less
piano with 88 keys | | piano with 88 keys
power strip at least 6 outlets | | power strip at least 6 outlets
wine under 12% alcohol | | wine under 12% alcohol
book for a 50 year old man | | book for a 50 year old man
50th birthday decorations | | 50th birthday decorations
"""

NUMBER_AND_PRICE = """
iphone 15 under 800 | max 800 | iphone 15
iphone 15 - $500 | max 500 USD | iphone 15
galaxy s23 256gb less than 600 | max 600 | galaxy s23 256gb
size 9 boots under 100 | max 100 | size 9 boots
boots size 9 100 or less | max 100 | boots size 9
2 pack night light under 15 | max 15 | 2 pack night light
lego for 8 year old under 40 | max 40 | lego for 8 year old
nike air max 90 under 120 | max 120 | nike air max 90
8 cup food processor 40 to 80 dollars | 40-80 USD | 8 cup food processor
65" tv under $700 | max 700 USD | 65" tv
4k tv under 400 | max 400 | 4k tv
under 25 1000 piece puzzle | max 25 | 1000 piece puzzle
under $30 5 gallon bucket | max 30 USD | 5 gallon bucket
tent 4 person between 100 and 200 | 100-200 | tent 4 person
grill with 3 burners up to 350 | max 350 | grill with 3 burners
ryzen 7 laptop about 900 dollars | 720-1080 USD | ryzen 7 laptop
two pounds of coffee under 20 dollars | max 20 USD | two pounds of coffee
kayak for two people under five hundred | max 500 | kayak for two people
xbox series x under 450 | max 450 | xbox series x
1984 orwell paperback under 10 | max 10 | 1984 orwell paperback
dewalt dcd777 drill $100-$150 | 100-150 USD | dewalt dcd777 drill
3 drawer dresser, oak, 200 max | max 200 | 3 drawer dresser, oak
size 9 boots between 20 and 50 | 20-50 | size 9 boots
24 pack aa batteries for $10 or less | max 10 USD | 24 pack aa batteries
20v drill under 90 weighing less than 4 pounds | max 90 | 20v drill weighing less than 4 pounds
"""

RATINGS = """
blender 4 stars and up | stars 4 | blender
blender with 4 stars or more | stars 4 | blender
blender at least 4 stars | stars 4 | blender
blender with at least four stars | stars 4 | blender
blender 4+ stars | stars 4 | blender
blender 4.5 stars and above | stars 4.5 | blender
blender rated 4.5+ | stars 4.5 | blender
blender rated 4 or higher | stars 4 | blender
blender rated at least 4 | stars 4 | blender
blender rated above 4 stars | stars 4 | blender
blender rating above 4 | stars 4 | blender
blender with a rating of 4.5 or more | stars 4.5 | blender
blender with a 4.5 rating | stars 4.5 | blender
blender minimum 4 star rating | stars 4 | blender
blender 4 star or better | stars 4 | blender
blender 4-star and up | stars 4 | blender
5 star blender | stars 5 | blender
5-star rated blender | stars 5 | blender
five star blenders only | stars 5 | ~
blender over 4.2 stars | stars 4.2 | blender
blender 4 out of 5 stars | stars 4 | blender
blender 4/5 or better rating | stars 4 | blender
blender nothing under 4 stars | stars 4 | blender
blender, reviews above 4 stars | stars 4 | blender
blender under 60, 4 stars+ | max 60; stars 4 | blender
$20-$30 kids sneakers, 4.5 stars and up | 20-30 USD; stars 4.5 | kids sneakers
star wars lego | | star wars lego
five star notebook | | five star notebook
5 star binder with zipper | | 5 star binder with zipper
50 star flag | | 50 star flag
star trek season 3 | | star trek season 3
energy star fridge | | energy star fridge
rated for 300 lbs hammock | | rated for 300 lbs hammock
0 degree rated sleeping bag | | 0 degree rated sleeping bag
rated m games ps4 | | rated m games ps4
3 star necklace | | 3 star necklace
star shaped cookie cutter 3 inch | | star shaped cookie cutter 3 inch
"""

SORTS = """
cheapest kettle | sort price_asc | kettle
the cheapest kettle | sort price_asc | kettle
show me the cheapest kettle you have | sort price_asc | ~
kettles lowest price first | sort price_asc | kettles
kettles, price low to high | sort price_asc | kettles
kettles sort by price | sort price_asc | kettles
kettles sorted by price low to high | sort price_asc | kettles
cheaper ones | sort price_asc | 
something cheaper please | sort price_asc | 
least expensive kettle | sort price_asc | kettle
most affordable kettle | sort price_asc | kettle
lowest priced kettles | sort price_asc | kettles
kettles cheapest first | sort price_asc | kettles
most expensive kettle | sort price_desc | kettle
kettles high to low | sort price_desc | kettles
kettles highest price first | sort price_desc | kettles
priciest kettle | sort price_desc | kettle
top rated kettles | sort rating | kettles
top-rated kettles | sort rating | kettles
best rated kettle | sort rating | kettle
highest rated kettles under 40 | max 40; sort rating | kettles
kettles sort by rating | sort rating | kettles
kettles with the best reviews | sort rating | kettles
highly rated kettles | sort rating | kettles
best reviewed kettle | sort rating | kettle
newest kettles | sort newest | kettles
latest kettle models | sort newest | ~
kettles newest first | sort newest | kettles
new arrivals kettles | sort newest | kettles
best selling kettles | sort best_selling | kettles
best-selling kettles | sort best_selling | kettles
bestselling kettles | sort best_selling | kettles
bestseller kettles | sort best_selling | kettles
most popular kettles | sort best_selling | kettles
kettles sort by popularity | sort best_selling | kettles
cheap kettle | | cheap kettle
best kettle | | best kettle
new balance 574 | | new balance 574
affordable kettle | | affordable kettle
too expensive | | ~
which is cheaper to run, gas or electric | | ~
cheaper | sort price_asc | 
not the cheapest kettle | lift sort | kettle
fisher price piano | | fisher price piano
price tag gun | | price tag gun
budget planner 2027 | | budget planner 2027
high low dress | | high low dress
"""

OFFERS = """
kettles on sale | offers on_sale | kettles
any deals on kettles | offers on_sale | kettles
kettle deals | offers on_sale | kettle
discounted kettles | offers on_sale | kettles
20% off kettles | offers on_sale | kettles
kettles at least 30% off | offers on_sale | kettles
kettles 50 percent off | offers on_sale | kettles
kettles $10 off | offers on_sale | kettles
clearance kettles | offers on_sale | kettles
half price kettles | offers on_sale | kettles
bogo socks | offers on_sale | socks
kettles with free shipping | offers free_shipping | kettles
kettle free delivery | offers free_shipping | kettle
kettles that ship free | offers free_shipping | kettles
kettle by tomorrow | offers fast_delivery | kettle
i need a kettle by tomorrow | offers fast_delivery | kettle
kettle same day delivery | offers fast_delivery | kettle
kettle same day | offers fast_delivery | kettle
kettle next day delivery | offers fast_delivery | kettle
kettle 2 day shipping | offers fast_delivery | kettle
kettle two-day shipping | offers fast_delivery | kettle
kettle overnight shipping | offers fast_delivery | kettle
kettle, can you get it to me overnight | offers fast_delivery | ~
kettle free next day delivery | offers free_shipping fast_delivery | kettle
kettle free 2 day shipping | offers free_shipping fast_delivery | kettle
kettle that arrives tomorrow | offers fast_delivery | kettle
kettle delivered by friday | offers fast_delivery | ~
kettles in stock | offers in_stock | kettles
in stock kettles only | offers in_stock | ~
kettles available now | offers in_stock | kettles
kettles in stock and on sale | offers in_stock on_sale | kettles
kettle that isn't sold out | offers in_stock | kettle
cheapest kettle on sale, free shipping | sort price_asc; offers on_sale free_shipping | kettle
it doesn't have to be on sale | lift on_sale | ~
not on sale | lift on_sale | 
no need for free shipping | lift free_shipping | 
overnight diapers size 4 | | overnight diapers size 4
overnight oats jars | | overnight oats jars
high clearance tires | | high clearance tires
ground clearance lift kit | | ground clearance lift kit
deal or no deal game | | deal or no deal game
garage sale signs | | garage sale signs
for sale sign | | for sale sign
free shipping labels | | free shipping labels
reduced sodium soy sauce | | reduced sodium soy sauce
same day pill organizer | | same day pill organizer
american express gift card | | american express gift card
tomorrow x together album | | tomorrow x together album
discount code not working | | discount code not working
free weights | | free weights
"free shipping" stamp | | "free shipping" stamp
mug that says best seller | | mug that says best seller
shirt saying cheapest dad under 20 | max 20 | shirt saying cheapest dad
"""

REFUSALS = """
running shoes not nike | not nike | running shoes
running shoes but not nike | not nike | running shoes
running shoes, not nike please | not nike | running shoes
shirt no collar | not collar | shirt
shirt with no collar | not collar | shirt
shirt without a collar | not collar | shirt
shirt without any buttons | not buttons | shirt
shirts without pockets or buttons | not pockets, buttons | shirts
shirts without pockets, buttons or a collar | not pockets, buttons, collar | shirts
shirt no polyester no wool | not polyester, wool | shirt
shirts except black | not black | shirts
shirts except black ones | not black | shirts
shirts except for black ones | not black | shirts
shirts excluding red | not red | shirts
shirts anything but white | not white | shirts
shirts in any color but white | not white | shirts
shirts other than white | not white | shirts
shirts not in white | not white | shirts
any brand except gucci, belt | not gucci | belt
any brand but lenovo laptop | not lenovo laptop | ~
i don't want leather, show me belts | not leather | belts
i don't want plastic ones | not plastic | 
i dont want anything plastic, lunch box | not plastic | lunch box
i do not like lavender. soap | not lavender | soap
i hate lavender, need soap | not lavender | soap
candles, she hates vanilla | not vanilla | candles
candles i can't stand vanilla | not vanilla | candles
candles that aren't scented | not scented | candles
a rug that isn't blue | not blue | a rug
a rug that is not blue | not blue | a rug
a rug that's not too big | not big | a rug
a rug not too big | not big | a rug
jacket that doesn't have a hood | not hood | jacket
jackets that don't have hoods | not hoods | jackets
snacks that don't contain nuts | not nuts | snacks
dog food without chicken or beef | not chicken, beef | dog food
dog food without corn, wheat, or soy | not corn, wheat, soy | dog food
dog food no corn, wheat or soy under 40 | max 40; not corn, wheat, soy | dog food
i'm allergic to nuts, trail mix | not nuts | trail mix
avoid perfume with musk | not perfume | ~
walnut shelf instead of oak | not oak | walnut shelf
walnut rather than oak | not oak | walnut
couch not leather under 500 | max 500; not leather | couch
couch under 500 not leather | max 500; not leather | couch
not black running shoes | not black | running shoes
not faux leather bag | not faux leather | bag
jeans not skinny fit | not skinny fit | jeans
not made in china toys | not china | toys
toys not made of plastic | not plastic | toys
nothing pink, girls backpack | not pink | girls backpack
nothing with glitter, birthday card | not glitter | birthday card
bag, no zipper, canvas | not zipper | bag canvas
watch with no numbers on the dial | not numbers | ~
tablet that isn't an ipad | not ipad | tablet
anything but an ipad | not ipad | 
earbuds apart from apple | not apple | earbuds
earbuds aside from apple or beats | not apple, beats | earbuds
sandals without heels and waterproof | not heels | ~
drop the hood | not hood | 
without the light | not light | 
skip the glitter | not glitter | 
don't show me anything pink, girls backpack | not pink | girls backpack
not looking for leather, just a canvas bag | not leather | canvas bag
a couch that's neither leather nor velvet | not leather, velvet | a couch
purses that aren't leather and come in green | not leather | ~
dog shampoo (no oatmeal) | not oatmeal | dog shampoo
get rid of the stripes | not stripes | 
phone case w/o ring holder | not ring holder | phone case
bed frame w/o headboard under 200 | max 200; not headboard | bed frame
cereal not too sweet | not sweet | cereal
sugar free gum | | sugar free gum
gluten-free pasta | | gluten-free pasta
wireless charger | | wireless charger
stainless steel pan | | stainless steel pan
no-show socks | | no-show socks
no show liner socks 6 pack | | no show liner socks 6 pack
no tie shoelaces | | no tie shoelaces
non stick pan | | non stick pan
no iron shirt | | no iron shirt
no pull dog harness | | no pull dog harness
no man's sky ps4 | | no man's sky ps4
no country for old men dvd | | no country for old men dvd
forget me not seeds | | forget me not seeds
hate u give paperback | | hate u give paperback
nothing phone 2 case | | nothing phone 2 case
no trespassing sign | | no trespassing sign
no touch thermometer | | no touch thermometer
strapless dress | | strapless dress
seamless leggings | | seamless leggings
cordless drill | | cordless drill
juice without artificial colors or flavors | not artificial colors, flavors | juice
face wash no fragrance and good for dry skin | not fragrance | ~
drill not black and decker or makita | not black and decker, makita | drill
hoodie not under armour | not under armour | hoodie
headphones not in ear | not in ear | headphones
notes not post-it pls | not post-it | notes
dog food no blue buffalo thx | not blue buffalo | dog food
hang pictures without drilling | | ~
curtain without lining | not lining | curtain
my kitchen has no counter space | | ~
a bag that has no zipper | not zipper | a bag
i have no idea what to get | | ~
what sets a yeti cooler apart from an rtic | | ~
sleeveless hoodie | | sleeveless hoodie
my headphones are not working | | ~
my order has not arrived | | ~
why is my card not accepted | | ~
i have not received my refund | | ~
i don't want to wait | | ~
no thanks | | ~
no, the blue one | | ~
not sure what to get my dad | | ~
why not | | ~
i hate when my glasses fog up | | ~
can i return it without a receipt | | ~
no problem | | ~
mug that says not a morning person | | mug that says not a morning person
"not today" shirt | | "not today" shirt
home is not a country paperback | | home is not a country paperback
i am not old birthday shirt | | i am not old birthday shirt
do not disturb door hanger | | do not disturb door hanger
"""

LIFTS = """
remove the price limit | lift price | 
any price is fine | lift price | 
price doesn't matter | lift price | 
forget about the budget | lift price | 
no price limit | lift price | 
money is no object, engagement ring | lift price | engagement ring
ignore the price, under 50 was silly | max 50 | ~
rating doesn't matter | lift rating | 
in any order | lift sort | 
"""

TABLES = {
    "upper bound": UPPER_BOUNDS,
    "lower bound": LOWER_BOUNDS,
    "range": RANGES,
    "around": AROUND,
    "currency": CURRENCIES,
    "no price": NO_PRICE,
    "number and price": NUMBER_AND_PRICE,
    "rating": RATINGS,
    "sort": SORTS,
    "offers": OFFERS,
    "refusal": REFUSALS,
    "lift": LIFTS,
}


def rows() -> list[tuple[str, str, str, str]]:
    """(table, question, facts, search text) of every row."""
    found = []
    for name, table in TABLES.items():
        for line in table.strip("\n").splitlines():
            question, facts, search = (part.strip() for part in line.split("|"))
            found.append((name, question, facts, search))
    return found
