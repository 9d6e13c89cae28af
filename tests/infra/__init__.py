from infra.node import use_packaged_node

use_packaged_node()  # before a test imports the CDK
