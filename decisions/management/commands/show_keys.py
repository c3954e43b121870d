from argparse import ArgumentParser
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from django.core.management.base import BaseCommand, CommandError

from decisions.ledger import timestamp
from decisions.models import SigningKey
from decisions.services.recorded_signer import recorded_signer
from decisions.signing import NoSigningKey


class Command(BaseCommand):
    help = "Prints the ids of the keys that sign, or signed, checkpoints and bundles; the last one is in use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--pem", action="store_true", help="the public keys too")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            recorded_signer()
        except NoSigningKey as error:
            self.stderr.write(f"nothing can be signed now: {error}")
        for key in SigningKey.objects.all():
            self.stdout.write(f"{key.key_id} since {timestamp(key.added_at)}")
            if options["pem"]:
                self.stdout.write(in_pem(bytes(key.public_key)), ending="")
        if not SigningKey.objects.exists():
            raise CommandError("no key has been recorded")


def in_pem(der: bytes) -> str:
    return load_der_public_key(der).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
